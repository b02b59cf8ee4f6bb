//go:build tools

// Package apiserver pins the API server that tests run against.
package apiserver

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
