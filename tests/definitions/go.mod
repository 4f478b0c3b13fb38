// The definitions of the kinds of cert-manager, of the Gateway API and of the Prometheus operator: tests/src/chart/definitions.rs.
module definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.3
)
