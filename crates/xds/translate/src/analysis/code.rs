//! Codes of the analysis: those of `istioctl analyze`, and additional ones for checks that it lacks.

use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Traffic likely behaves differently than intended.
    Warning,
    /// Informative: traffic is not affected.
    Info,
}

impl Level {
    /// Its name in texts and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $level:ident;)*) => {
        /// Code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of their ids.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// `IST0101`: the id that tools and filters know.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// Istio's name, for codes of Istio.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Severity of findings with this code.
            #[must_use]
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }
        }
    };
}

codes! {
    /// An object that is referred to does not exist.
    ReferencedResourceNotFound = "IST0101", Warning;
    /// Two VirtualServices of the mesh have a host in common.
    ConflictingMeshGatewayVirtualServiceHosts = "IST0109", Warning;
    /// Two Sidecars select the same workload.
    ConflictingSidecarWorkloadSelectors = "IST0110", Warning;
    /// Two Sidecars are for the whole namespace.
    MultipleSidecarsWithoutWorkloadSelectors = "IST0111", Warning;
    /// A route leads to a service with several ports and names none.
    VirtualServiceDestinationPortSelectorRequired = "IST0112", Warning;
    /// The name of a Service's port declares no protocol, so Envoy detects it.
    PortNameIsNotUnderNamingConvention = "IST0118", Info;
    /// A policy selects no workload.
    NoMatchingWorkloadsFound = "IST0127", Warning;
    /// Earlier routes match all traffic of a route.
    VirtualServiceUnreachableRule = "IST0130", Warning;
    /// Earlier routes match all traffic of one condition of a route.
    VirtualServiceIneffectiveMatch = "IST0131", Warning;
    /// A VirtualService has a host that its Gateway does not serve.
    VirtualServiceHostNotFoundInGateway = "IST0132", Warning;
    /// A ServiceEntry for TCP without an address receives all connections to its port.
    ServiceEntryAddressesRequired = "IST0134", Warning;
    /// Gateways of the same workloads present the same certificate for different hosts.
    GatewayDuplicateCertificate = "IST0138", Warning;
    /// Two Gateways of the same workloads have a port and a host in common.
    ConflictingGateways = "IST0145", Warning;
    /// A route matches claims of a token that is not validated.
    JwtClaimBasedRoutingWithoutRequestAuthN = "IST0149", Warning;
    /// A patch depends on others, and has no priority that orders it after them.
    EnvoyFilterUsesRelativeOperation = "IST0151", Info;
    /// REPLACE where there is nothing to replace.
    EnvoyFilterUsesReplaceOperationIncorrectly = "IST0152", Warning;
    /// ADD where nothing can be added.
    EnvoyFilterUsesAddOperationIncorrectly = "IST0153", Warning;
    /// REMOVE where nothing can be removed.
    EnvoyFilterUsesRemoveOperationIncorrectly = "IST0154", Warning;
    /// A patch for certain proxy versions depends on others, without a priority.
    EnvoyFilterUsesRelativeOperationWithProxyVersion = "IST0155", Info;
    /// Neither a Telemetry nor the mesh names a provider.
    InvalidTelemetryProvider = "IST0157", Warning;
    /// Two Telemetries select the same workload.
    ConflictingTelemetryWorkloadSelectors = "IST0159", Warning;
    /// Two Telemetries are for the whole namespace.
    MultipleTelemetriesWithoutWorkloadSelectors = "IST0160", Warning;
    /// A Gateway refers to an unusable Secret.
    InvalidGatewayCredential = "IST0161", Warning;
    /// No Service leads to the port of a Gateway.
    GatewayPortNotDefinedOnService = "IST0162", Warning;
    /// A VirtualService refers to a gateway that is generated from the Gateway API.
    ReferencedInternalGateway = "IST0165", Warning;
    /// A condition of the object's status is not as it should be.
    NegativeConditionStatus = "IST0171", Warning;
    /// A subset selects no endpoint.
    DestinationRuleSubsetNotSelectPods = "IST0173", Warning;
    /// A DestinationRule is for a host without a service.
    UnknownDestinationRuleHost = "IST0174", Warning;
    /// Another DestinationRule, which takes precedence, defines a subset differently.
    SubsetDefinedTwice = "PLF0001", Warning;
    /// An object is exported to a namespace that does not exist.
    ExportedToUnknownNamespace = "PLF0002", Warning;
    /// A rule, or a part of it, applies to no traffic of any proxy.
    RuleWithoutEffect = "PLF0003", Warning;
    /// Weights that look like percentages and do not add up to 100.
    WeightsAreNoPercentages = "PLF0004", Warning;
    /// Clients send plaintext although mutual TLS is required, or the other way round.
    MutualTlsDisagrees = "PLF0005", Warning;
    /// A redirect leads back to itself: clients follow it until they give up.
    RedirectLoop = "PLF0006", Warning;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_in_order() {
        let ids: Vec<_> = Code::ALL.iter().map(|code| code.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }
}
