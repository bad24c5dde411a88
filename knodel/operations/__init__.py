"""The operations of the clients, once for both: generators of effects whose first argument is a `ClientCore`."""
