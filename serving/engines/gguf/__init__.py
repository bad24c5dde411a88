"""Language models in GGUF files, by llama.cpp in a process of its own."""
