//! Features of the Gateway API that Gateways have here.

/// Names as in the package `pkg/features` of sigs.k8s.io/gateway-api, sorted. A feature that is not listed
/// may work in part.
pub(super) const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "GRPCRoute",
    "Gateway",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
    "TLSRoute",
];

#[cfg(test)]
mod tests {
    use super::FEATURES;

    #[test]
    fn features_are_sorted_and_fit_into_a_status() {
        assert!(FEATURES.is_sorted_by(|one, other| one < other));
        assert!(FEATURES.len() <= 64, "the API server takes no more");
    }
}
