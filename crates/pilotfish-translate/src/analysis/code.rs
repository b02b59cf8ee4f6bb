//! What an analysis finds, by the codes of `istioctl analyze`, and by codes of our own for what that does not look at.

use std::fmt;

/// Whether a finding is likely a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Traffic likely does not do what was meant.
    Warning,
    /// Worth knowing; nothing goes wrong because of it.
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
        /// Which kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All of them, in the order of their ids.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// `IST0101`: the id that tools and filters know.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// The name that Istio gives it, where it is Istio's.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Whether it is likely a mistake.
            #[must_use]
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }
        }
    };
}

codes! {
    /// Something that is named is not there.
    ReferencedResourceNotFound = "IST0101", Warning;
    /// Two VirtualServices of the mesh have a host in common.
    ConflictingMeshGatewayVirtualServiceHosts = "IST0109", Warning;
    /// Two Sidecars select the same workload.
    ConflictingSidecarWorkloadSelectors = "IST0110", Warning;
    /// Two Sidecars are for the whole namespace.
    MultipleSidecarsWithoutWorkloadSelectors = "IST0111", Warning;
    /// A route leads to a service with several ports and names none.
    VirtualServiceDestinationPortSelectorRequired = "IST0112", Warning;
    /// The name of a Service's port tells no protocol.
    PortNameIsNotUnderNamingConvention = "IST0118", Info;
    /// A policy selects no workload.
    NoMatchingWorkloadsFound = "IST0127", Warning;
    /// Routes before it take all that a route would.
    VirtualServiceUnreachableRule = "IST0130", Warning;
    /// Routes before it take all that one condition of a route would.
    VirtualServiceIneffectiveMatch = "IST0131", Warning;
    /// A VirtualService has a host that its Gateway does not serve.
    VirtualServiceHostNotFoundInGateway = "IST0132", Warning;
    /// A ServiceEntry for TCP without an address takes all connections to its port.
    ServiceEntryAddressesRequired = "IST0134", Warning;
    /// Gateways of the same workloads show the same certificate for different hosts.
    GatewayDuplicateCertificate = "IST0138", Warning;
    /// Two Gateways of the same workloads have a port and a host in common.
    ConflictingGateways = "IST0145", Warning;
    /// A route asks for claims of a token that nothing checks.
    JwtClaimBasedRoutingWithoutRequestAuthN = "IST0149", Warning;
    /// A patch depends on others, and no priority says that it comes after them.
    EnvoyFilterUsesRelativeOperation = "IST0151", Info;
    /// REPLACE where there is nothing to replace.
    EnvoyFilterUsesReplaceOperationIncorrectly = "IST0152", Warning;
    /// ADD where nothing can be added.
    EnvoyFilterUsesAddOperationIncorrectly = "IST0153", Warning;
    /// REMOVE where nothing can be removed.
    EnvoyFilterUsesRemoveOperationIncorrectly = "IST0154", Warning;
    /// A patch for proxies of some version depends on others, without a priority.
    EnvoyFilterUsesRelativeOperationWithProxyVersion = "IST0155", Info;
    /// A Telemetry names no provider, and neither does the mesh.
    InvalidTelemetryProvider = "IST0157", Warning;
    /// Two Telemetries select the same workload.
    ConflictingTelemetryWorkloadSelectors = "IST0159", Warning;
    /// Two Telemetries are for the whole namespace.
    MultipleTelemetriesWithoutWorkloadSelectors = "IST0160", Warning;
    /// A Gateway names a Secret that cannot be used.
    InvalidGatewayCredential = "IST0161", Warning;
    /// No Service leads to the port of a Gateway.
    GatewayPortNotDefinedOnService = "IST0162", Warning;
    /// A VirtualService names a gateway that is made of an object of the Gateway API.
    ReferencedInternalGateway = "IST0165", Warning;
    /// A condition of the object's status does not hold.
    NegativeConditionStatus = "IST0171", Warning;
    /// A subset selects no endpoint.
    DestinationRuleSubsetNotSelectPods = "IST0173", Warning;
    /// A DestinationRule is for a host that no service has.
    UnknownDestinationRuleHost = "IST0174", Warning;
    /// A DestinationRule has a subset that another one, which counts first, has in another way.
    SubsetDefinedTwice = "PLF0001", Warning;
    /// An object is exported to a namespace that is not there.
    ExportedToUnknownNamespace = "PLF0002", Warning;
    /// A rule, or a part of it, that no traffic of any proxy can take.
    RuleWithoutEffect = "PLF0003", Warning;
    /// Weights that look like percentages and do not add up to 100.
    WeightsAreNoPercentages = "PLF0004", Warning;
    /// Clients send plaintext where mutual TLS is required, or the other way round.
    MutualTlsDisagrees = "PLF0005", Warning;
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
