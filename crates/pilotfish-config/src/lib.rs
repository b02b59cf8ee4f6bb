//! Istio and Kubernetes kinds: parsing, defaults, validation, and the file source.
