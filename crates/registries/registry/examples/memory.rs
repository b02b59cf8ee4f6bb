//! Measures the heap bytes of one cached object: `cargo run -p pilotfish-registry --example memory`.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use pilotfish_config::SourceEvent;
use pilotfish_model::{Object, Update, WorldWriter};
use pilotfish_registry::testing::objects;
use pilotfish_registry::{AggregateController, AggregateSettings, Input, RegistrySettings, RegistryTable};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::error::Error;
use std::fmt::Write as _;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SERVICES: usize = 2_000;
const ENDPOINTS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut cache = Cache::new();
    println!("bytes for each:        as read   in registries   in the world    together");
    cache.measure("Service", SERVICES, service)?;
    cache.measure("Pod", SERVICES * ENDPOINTS, pod)?;
    cache.measure("EndpointSlice", SERVICES, slice)?;
    Ok(())
}

struct Cache {
    controller: AggregateController,
    feed: String,
    writer: WorldWriter,
}

impl Cache {
    fn new() -> Self {
        let settings = AggregateSettings::default();
        let feed = settings.config_feed.to_string();
        let mut controller = AggregateController::new(settings);
        controller.add_source(&feed, "source");
        for (provider, registry) in RegistryTable::default().iter() {
            if let Input::Objects(new) = registry.input {
                controller.add_registry(new(provider, RegistrySettings::default()), &feed);
            }
        }
        Self { controller, feed, writer: WorldWriter::new() }
    }

    /// Takes in many objects of a kind, stage by stage, and prints what each stage adds for one of them.
    fn measure(&mut self, kind: &str, count: usize, text: fn(usize) -> String) -> Result<(), Box<dyn Error>> {
        let start = Region::new(ALLOCATOR);
        let mut read: Vec<Object> = Vec::with_capacity(count);
        for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
            let mut yaml = String::new();
            for index in chunk {
                let _ = writeln!(yaml, "{}---", text(*index));
            }
            read.extend(objects(&yaml)?);
        }
        let as_read = held(&start) - count * size_of::<Object>();
        for object in read {
            let event = SourceEvent::Apply(object);
            self.controller.source_event(&self.feed, "source", event)?;
        }
        let updates: Vec<Update> = self.controller.settle();
        let in_registries = held(&start) - updates.capacity() * size_of::<Update>() - as_read;
        for update in updates {
            self.writer.apply(update);
        }
        drop(self.writer.publish());
        let together = held(&start);
        let each = |bytes: usize| bytes / count;
        println!(
            "{kind:<20} {:>9} {:>15} {:>14} {:>11}",
            each(as_read),
            each(in_registries),
            each(together.saturating_sub(as_read + in_registries)),
            each(together)
        );
        Ok(())
    }
}

fn held(region: &Region<'_, System>) -> usize {
    let stats = region.change();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

fn service(index: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: service-{index}\n  namespace: namespace-{}\n  \
         uid: 6a7b1c9e-0000-4000-8000-{index:012}\n  creationTimestamp: '2024-05-01T12:00:00Z'\n  \
         labels: {{app: service-{index}, app.kubernetes.io/managed-by: Helm}}\nspec:\n  type: ClusterIP\n  \
         clusterIP: 10.{}.{}.1\n  clusterIPs: [10.{}.{}.1]\n  ipFamilies: [IPv4]\n  \
         ipFamilyPolicy: SingleStack\n  selector: {{app: service-{index}}}\n  ports:\n  \
         - {{name: http, port: 80, targetPort: 8080, protocol: TCP}}\n  \
         - {{name: grpc, port: 81, targetPort: 8081, protocol: TCP}}\n",
        index / 100,
        index / 250,
        index % 250,
        index / 250,
        index % 250,
    )
}

fn pod_address(index: usize) -> String {
    format!("10.{}.{}.{}", 100 + index / 62_500, index / 250 % 250, 1 + index % 250)
}

fn pod(index: usize) -> String {
    let of = index / ENDPOINTS;
    let address = pod_address(index);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: service-{of}-7d9c5b8f6d-{index:05}\n  \
         namespace: namespace-{}\n  uid: 6a7b1c9e-1111-4000-8000-{index:012}\n  \
         creationTimestamp: '2024-05-01T12:00:00Z'\n  labels: {{app: service-{of}, version: v1, \
         pod-template-hash: 7d9c5b8f6d, security.istio.io/tlsMode: istio, \
         service.istio.io/canonical-name: service-{of}, service.istio.io/canonical-revision: v1}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: service-{of}-7d9c5b8f6d, \
         controller: true}}]\nspec:\n  nodeName: node-{}\n  serviceAccountName: service-{of}\n  \
         containers:\n  - {{name: app, ports: [{{name: http, containerPort: 8080}}, {{name: grpc, \
         containerPort: 8081}}]}}\n  initContainers:\n  - {{name: istio-init}}\n  \
         - {{name: istio-proxy, restartPolicy: Always, ports: [{{name: http-envoy-prom, \
         containerPort: 15090}}]}}\nstatus:\n  phase: Running\n  hostIP: 192.168.0.{}\n  podIP: {address}\n  \
         podIPs: [{{ip: {address}}}]\n  conditions:\n  \
         - {{type: PodReadyToStartContainers, status: 'True'}}\n  - {{type: Initialized, status: 'True'}}\n  \
         - {{type: Ready, status: 'True'}}\n  - {{type: ContainersReady, status: 'True'}}\n  \
         - {{type: PodScheduled, status: 'True'}}\n",
        of / 100,
        index % 100,
        index % 100,
    )
}

fn slice(index: usize) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: service-{index}-x7k2p\n  \
         namespace: namespace-{}\n  uid: 6a7b1c9e-2222-4000-8000-{index:012}\n  \
         labels: {{kubernetes.io/service-name: service-{index}, endpointslice.kubernetes.io/managed-by: \
         endpointslice-controller.k8s.io, app: service-{index}}}\n  \
         ownerReferences: [{{apiVersion: v1, kind: Service, name: service-{index}, controller: true}}]\n\
         addressType: IPv4\nports:\n- {{name: http, port: 8080, protocol: TCP}}\n\
         - {{name: grpc, port: 8081, protocol: TCP}}\nendpoints:\n",
        index / 100
    );
    for number in 0..ENDPOINTS {
        let pod = index * ENDPOINTS + number;
        let _ = writeln!(
            text,
            "- {{addresses: [{}], conditions: {{ready: true, serving: true, terminating: false}}, nodeName: \
             node-{}, zone: zone-a, targetRef: {{kind: Pod, namespace: namespace-{}, name: \
             service-{index}-7d9c5b8f6d-{pod:05}}}}}",
            pod_address(pod),
            pod % 100,
            index / 100
        );
    }
    text
}
