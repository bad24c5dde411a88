"""Storage: from a URI to the bytes of a model, verified; used by the model server before an engine sees anything.

Every store is asked through one transport of our own (`web`), not through the libraries of the fsspec family: these
connect by themselves, so that no address could be checked when it is connected to, and what they bring could be
neither bounded nor continued. The makers' libraries do what needs no connection: botocore signs, google-auth makes
tokens.
"""
