"""Where stories come from.

stories   how a corpus file is framed; reading and writing it
sources   the hub, a file, a URL or the grammar, as one kind of corpus
hub       a pinned data set on the Hugging Face hub
fetch     resumable transfer over HTTP
download  the stage's work: data/raw from a source
"""
