"""Convert objects of other model platforms to Models: KServe's InferenceServices, and Knative Services."""
