"""The CustomResourceDefinitions of our kinds, made from the Python types, so that both doors say the same. Pure."""
