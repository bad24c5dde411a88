"""The site of the documentation: pages of `docs/`, generated reference pages, and pictures, built by Zensical."""
