//! Registration with Pilotfish itself: through its API, and from there to a proxy.

use super::{Options, Product, Seen, address, measure, service};
use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use pilotfish_connect::{Connector, Server, grpc_channel};
use pilotfish_registration_api::v1::registration_service_client::RegistrationServiceClient;
use pilotfish_registration_api::v1::{
    BatchRegisterRequest, BatchRenewRequest, Instance, Port, RegisterRequest, RenewRequest, register_result,
    renew_result,
};
use pilotfish_registration_client::{Change, Client, ClientOptions};
use pilotfish_testkit::real::{Pilotfish, free_port};
use std::time::Instant;
use tokio::sync::mpsc;

/// Items of a batch.
const BATCH: usize = 500;
/// Batches at a time.
const PARALLEL: usize = 16;
/// Number of renewals of all leases.
const RENEWALS: usize = 5;

/// The API of a Pilotfish.
struct Registration {
    port: u16,
    stub: Stub,
}

/// A client of the API.
type Stub = RegistrationServiceClient<tonic::transport::Channel>;

pub(super) async fn run(options: &Options) -> Result<()> {
    let (api, data) = (Registration::at(free_port())?, tempfile::tempdir()?);
    let listen = format!("127.0.0.1:{}", api.port);
    let data = data.path().to_string_lossy();
    let arguments = ["--registration-address", &listen, "--data-dir", &data];
    let mut pilotfish = Pilotfish::launch(&options.pilotfish.to_string_lossy(), &arguments);
    pilotfish.ready().await;
    let places =
        (0..options.services).flat_map(|number| (0..options.instances).map(move |index| (number, index)));
    let instances: Vec<Instance> =
        places.map(|(number, index)| instance(number, index, &address(options, number, index))).collect();
    timed(&pilotfish, "registrations", instances.len(), api.register_all(&instances)).await?;
    timed(&pilotfish, "heartbeats", instances.len() * RENEWALS, api.renew_all(&instances)).await?;
    let began = Instant::now();
    pilotfish.kill().await;
    pilotfish.restart().await;
    println!("killed, and ready again after {:.2} s", began.elapsed().as_secs_f64());
    let memory = pilotfish.metric("process_resident_memory_bytes").await;
    println!("{:.0} MB resident, {} instances", memory / 1e6, instances.len());
    measure::changes(options, &api, &pilotfish).await
}

/// Runs `work`, and prints its rate and what it cost the server.
async fn timed(
    pilotfish: &Pilotfish,
    what: &str,
    count: usize,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let cpu = pilotfish.metric("process_cpu_seconds_total").await;
    let began = Instant::now();
    work.await?;
    let (wall, count) = (began.elapsed().as_secs_f64(), count as f64);
    let used = pilotfish.metric("process_cpu_seconds_total").await - cpu;
    println!("{:.0} {what} a second, {:.0} for each second of the server's CPU", count / wall, count / used);
    Ok(())
}

fn instance(number: usize, index: usize, address: &str) -> Instance {
    Instance {
        namespace: "default".into(),
        service: service(number),
        id: format!("instance-{index}"),
        addresses: vec![address.to_owned()],
        ports: vec![Port { number: 8080, protocol: "http".into(), ..Port::default() }],
        labels: [("version".to_owned(), "v1".to_owned())].into(),
        ttl: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
        ..Instance::default()
    }
}

impl Registration {
    /// Connects at the first call.
    fn at(port: u16) -> Result<Self> {
        let server = Server { host: "127.0.0.1".into(), port };
        let stub = RegistrationServiceClient::new(grpc_channel(Connector::default(), &server)?);
        Ok(Self { port, stub })
    }

    async fn register_all(&self, instances: &[Instance]) -> Result<()> {
        let batches = stream::iter(instances.chunks(BATCH)).map(|batch| {
            let mut stub = self.stub.clone();
            let request = |instance: &Instance| RegisterRequest {
                instance: Some(instance.clone()),
                expected_revision: None,
            };
            let requests = batch.iter().map(request).collect();
            async move {
                let answer = stub.batch_register(BatchRegisterRequest { requests }).await?.into_inner();
                let failed = answer.results.into_iter().find_map(|result| match result.result {
                    Some(register_result::Result::Response(_)) => None,
                    other => Some(other),
                });
                if let Some(error) = failed { bail!("not registered: {error:?}") } else { Ok(()) }
            }
        });
        batches.buffer_unordered(PARALLEL).try_collect().await
    }

    async fn renew_all(&self, instances: &[Instance]) -> Result<()> {
        let all = (0..RENEWALS).flat_map(|_| instances.chunks(BATCH));
        let batches = stream::iter(all).map(|batch| {
            let mut stub = self.stub.clone();
            let request = |instance: &Instance| RenewRequest {
                namespace: instance.namespace.clone(),
                service: instance.service.clone(),
                id: instance.id.clone(),
            };
            let requests = batch.iter().map(request).collect();
            async move {
                let answer = stub.batch_renew(BatchRenewRequest { requests }).await?.into_inner();
                let failed = answer.results.into_iter().find_map(|result| match result.result {
                    Some(renew_result::Result::Response(_)) => None,
                    other => Some(other),
                });
                if let Some(error) = failed { bail!("not renewed: {error:?}") } else { Ok(()) }
            }
        });
        batches.buffer_unordered(PARALLEL).try_collect().await
    }
}

impl Product for Registration {
    fn registry(&self) -> String {
        String::new()
    }

    async fn register(&self, number: usize, index: usize, address: &str) -> Result<()> {
        let request =
            RegisterRequest { instance: Some(instance(number, index, address)), expected_revision: None };
        self.stub.clone().register(request).await.context("registering")?;
        Ok(())
    }

    async fn watch(&self) -> Result<Seen> {
        let client = Client::new(ClientOptions::new([format!("http://127.0.0.1:{}", self.port)]))?;
        let mut watch = client.watch("default", &service(0));
        let (say, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(change) = watch.next().await {
                let Change::Updated(record) = change else { continue };
                let text = record.instance.map(|instance| instance.addresses.join(" ")).unwrap_or_default();
                if say.send((text, Instant::now())).is_err() {
                    return;
                }
            }
        });
        Ok(seen)
    }
}
