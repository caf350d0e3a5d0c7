"""Models of Hugging Face's Llama, Qwen3 and GPT-2 classes and models of this project, made of each other.

families    what each family can express, and what it calls the parts
configs     config.json
weights     dicts of tensors
vocabulary  tokenizer.json

`transformers` itself is needed by the tests alone.
"""
