//! `pilotfish demo`: what a newcomer tries first.
//!
//! Sample services in this process, the bundled example, a real Envoy if one is found, a little traffic, and a live picture
//! of where it goes. Editing the example's YAML changes the picture.

mod envoy;
mod example;
mod picture;
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
    /// The Envoy to start; otherwise the one on the PATH or in target/tools
    #[arg(long, env = "PILOTFISH_ENVOY", value_name = "FILE")]
    envoy: Option<PathBuf>,
    /// Requests a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Ends after this long; otherwise at Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// Where Envoys connect
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15010")]
    xds_address: String,
    /// Where health, metrics and debug pages are
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15014")]
    admin_address: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    pilotfish_config::Duration::parse(text).map(Into::into)
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

    /// Runs until `stop` is done or the time is over.
    ///
    /// # Errors
    /// When an address is taken or Envoy cannot be started; the text has what to do.
    pub(crate) async fn run(
        self,
        picture: Arc<picture::Picture>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<()> {
        example::write_if_missing(&self.dir)?;
        let _services = services::start().await?;
        let bound =
            Box::pin(Bound::bind(self.settings().check(pilotfish_registry::RegistryTable::default())?))
                .await?;
        let Addresses { xds, admin, .. } = bound.addresses();
        let state = bound.admin_state();
        let stop = until(stop, self.duration);
        picture.say(&format!(
            "Serving {} to proxies on {xds}; pages on http://{admin}/debug",
            self.dir.display()
        ));
        let work = async {
            match envoy::find(self.envoy.as_deref()) {
                Ok(found) => {
                    picture.say(&format!("Envoy: {}", found.display()));
                    let envoy = envoy::start(&found, xds).await?;
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
                // Nobody sends: it resolves when the work below has failed.
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

/// Done when `stop` is, or after the time.
async fn until(stop: impl Future<Output = ()>, duration: Option<Duration>) {
    match duration {
        Some(duration) => drop(tokio::time::timeout(duration, stop).await),
        None => stop.await,
    }
}

fn tips(dir: &std::path::Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Try it in another terminal:\n  \
         curl -H 'Host: catalog.shop.svc.cluster.local' localhost:{port}\n  \
         curl -H 'Host: catalog.shop.svc.cluster.local' -H 'x-user: tester' localhost:{port}\n\
         Then edit the weights in {dir}/routes.yaml, or take an address out of {dir}/endpoints.yaml, and watch.\n"
    )
}

pub(crate) use picture::Picture;
