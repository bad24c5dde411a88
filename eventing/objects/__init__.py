"""EventSources, ModelEvents and the CloudEvents they are made from, as typed values. Pure."""
