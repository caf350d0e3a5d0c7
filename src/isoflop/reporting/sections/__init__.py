"""The write-up: one module per part, each a function from the study to sections. All prose stands here."""
