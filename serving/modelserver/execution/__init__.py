"""One inference: slots, queue, batches, deadlines, worker threads; the model's lifecycle."""
