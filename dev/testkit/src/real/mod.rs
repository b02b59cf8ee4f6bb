//! Real servers and clients for tests: the built `pilotfish`, Envoy, Python with grpcio, sample backends and
//! load.
//!
//! Everything listens on free ports of loopback addresses and ends when its guard is dropped.

mod apiserver;
mod apiserver_proxy;
mod apiserver_view;
mod backend;
mod browser;
mod certificates;
mod clock;
mod container;
mod dialogue;
mod envoy;
mod etcd;
mod eureka;
mod fault_proxy;
mod host;
mod java;
mod kubelet;
mod live_registry;
mod load;
mod name_server;
mod pilotfish;
mod program;
mod rnacos;
mod tunnel;
mod wait;
mod zookeeper;

pub use apiserver::{ApiServer, ApiServerOptions, Authorization, User, definition};
pub use apiserver_proxy::{ApiServerFault, ApiServerProxy, RequestCounts};
pub use backend::Backend;
pub use browser::Browser;
pub use certificates::Authority;
pub use clock::WrongClock;
pub use container::Container;
pub use dialogue::Dialogue;
pub use envoy::{Envoy, EnvoyOptions};
pub use etcd::{Etcd, EtcdTls};
pub use eureka::{EurekaInstance, EurekaServer, eureka_application, eureka_application_with};
pub use fault_proxy::{Fault, FaultProxy};
pub use host::Host;
pub use java::Java;
pub use kubelet::EnvoyPod;
pub use live_registry::{LiveRegistry, RegistryState};
pub use load::{Load, Tally, fetch, get, request};
pub use name_server::NameServer;
pub use pilotfish::Pilotfish;
pub use program::{Program, Tool, free_port};
pub use rnacos::Rnacos;
pub use tunnel::{Tunnel, client_hello};
pub use wait::{LIMIT, eventually};
pub use zookeeper::{Nodes, ZooKeeper};
