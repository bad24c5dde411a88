"""The Helm chart, made from the objects that kustomize makes: one source for both ways of installation."""
