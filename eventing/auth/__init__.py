"""Authentication and authorization of event senders: OIDC tokens, webhook signatures, permits."""
