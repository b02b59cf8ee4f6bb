//! Live Kubernetes.
