//! `pilotfish demo`: what a newcomer tries first.
//!
//! Sample services in this process, the bundled example, a real Envoy if one is found, a little traffic, and
//! a live picture of where it goes. Editing the example's YAML changes the picture.

mod envoy;
mod example;
mod picture;
mod ports;
mod preview;
mod services;
mod traffic;

use crate::serve::{Addresses, Bound};
use crate::settings::{AdminArgs, ServeArgs, SourceArgs, XdsArgs};
use anyhow::{Context, Result};
use clap::Args;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Tries Pilotfish with sample services, a real Envoy and live traffic
#[derive(Args, Clone, Debug)]
pub(crate) struct Demo {
    /// The folder with the example's YAML; it is written there if it does not exist
    #[arg(long, value_name = "DIR", default_value = example::FOLDER)]
    dir: PathBuf,
    /// Port of the example's services, on which Envoy takes requests; an example that is written gets it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    envoy_port: Option<u16>,
    /// The Envoy to start; otherwise the one on the PATH or in target/tools
    #[arg(long, env = "PILOTFISH_ENVOY", value_name = "FILE")]
    envoy: Option<PathBuf>,
    /// Rate of requests, in requests per second
    #[arg(
        long, value_name = "N", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    rate: u32,
    /// Ends after this long; otherwise at Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = pilotfish_duration::parse)]
    duration: Option<Duration>,
    /// Address that Envoys connect to
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15010")]
    xds_address: String,
    /// Listen address of health, metrics and debug pages
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15014")]
    admin_address: String,
}

impl Demo {
    fn settings(&self) -> ServeArgs {
        ServeArgs {
            sources: SourceArgs { paths: vec![self.dir.clone()], ..SourceArgs::default() },
            xds: XdsArgs {
                xds_address: Some(self.xds_address.clone()),
                drain_deadline: Some("1s".into()),
                ..XdsArgs::default()
            },
            admin: AdminArgs { admin_address: Some(self.admin_address.clone()), ..AdminArgs::default() },
            ..ServeArgs::default()
        }
    }

    /// Returns the addresses that the demo listens on; `envoy_port` is set if there is an Envoy.
    fn needed(&self, envoy_port: Option<u16>) -> Vec<ports::Needed> {
        let needed = |by: &str, address: &str, way_out: &str| ports::Needed {
            by: by.to_owned(),
            address: address.to_owned(),
            way_out: way_out.to_owned(),
        };
        let mut all = vec![
            needed("xDS", &self.xds_address, "--xds-address names another address"),
            needed("the dashboard", &self.admin_address, "--admin-address names another address"),
        ];
        all.extend(envoy_port.map(|port| {
            let other = if port == example::PORT { 18_080 } else { example::PORT };
            let way_out = format!("--envoy-port {other} --dir shop-{other} takes another port");
            needed("Envoy", &format!("127.0.0.1:{port}"), &way_out)
        }));
        all.extend(services::addresses().map(|(name, address)| {
            needed(&format!("the sample service {name:?}"), address, "is another demo running?")
        }));
        all
    }

    /// Runs until `stop` resolves or the time is over.
    ///
    /// # Errors
    /// When an address is taken or Envoy cannot be started, with advice.
    pub(crate) async fn run(
        self,
        picture: Arc<picture::Picture>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<()> {
        let port = example::port(&self.dir, self.envoy_port)?;
        let envoy = envoy::find(self.envoy.as_deref());
        ports::check(&self.needed(envoy.is_ok().then_some(port)))?;
        if example::write_if_missing(&self.dir, port)? {
            let folder = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
            picture.say(&format!("Wrote the example to {}", folder.display()));
        }
        let _services = services::start().await?;
        let bound =
            Box::pin(Bound::bind(self.settings().check(pilotfish_registry::RegistryTable::default())?))
                .await?;
        let Addresses { xds, admin, .. } = bound.addresses();
        let state = bound.admin_state();
        let stop = until(stop, self.duration);
        picture.say(&format!(
            "\n  Dashboard: http://{admin}/\n\nServing {} to proxies on {xds}",
            self.dir.display()
        ));
        let work = async {
            match envoy {
                Ok(found) => {
                    picture.say(&format!("Envoy: {}", found.display()));
                    let envoy = envoy::start(&found, xds, port).await?;
                    picture.say(&tips(&self.dir, envoy.port()));
                    traffic::send(&envoy, self.rate, &picture).await
                }
                Err(why) => {
                    picture.say(&why);
                    preview::show(&state, &picture).await?;
                    std::future::pending().await
                }
            }
        };
        tokio::pin!(work);
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let stopped = async {
            tokio::select! {
                () = stop => {}
                // Nothing is sent on this channel: it closes when the work below has failed.
                _ = end => {}
            }
        };
        let serve = bound.run(stopped);
        tokio::pin!(serve);
        tokio::select! {
            done = &mut serve => done,
            failed = &mut work => {
                drop(ended);
                serve.await.context("after the demo failed")?;
                failed
            }
        }
    }
}

/// Waits for `stop`, at most for the duration.
async fn until(stop: impl Future<Output = ()>, duration: Option<Duration>) {
    match duration {
        Some(duration) => drop(tokio::time::timeout(duration, stop).await),
        None => stop.await,
    }
}

fn tips(dir: &std::path::Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Try it in another terminal:\n  curl -H 'Host: catalog.shop.svc.cluster.local' localhost:{port}\n  \
         curl -H 'Host: catalog.shop.svc.cluster.local' -H 'x-user: tester' localhost:{port}\n\
         Then edit the weights in {dir}/routes.yaml, or take an address out of {dir}/endpoints.yaml, \
         and watch.\n"
    )
}

pub(crate) use picture::Picture;
