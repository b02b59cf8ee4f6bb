//! The walk of a registry's page: what an Envoy answers while instances come and go, and what Pilotfish says
//! while the product is gone.

use pilotfish_testkit::real::{Pilotfish, eventually, get};

/// A host behind an Envoy.
pub(crate) struct Reached {
    /// Where the Envoy listens on loopback.
    pub(crate) port: u16,
    pub(crate) host: &'static str,
}

impl Reached {
    /// Waits until an instance answers.
    pub(crate) async fn answers(&self, name: &str) {
        eventually(&format!("{} is answered by {name}", self.host), || self.answer(name)).await;
    }

    /// Waits until no other instance answers.
    pub(crate) async fn answers_alone(&self, name: &str) {
        eventually(&format!("{} is answered by {name} alone", self.host), || async {
            for _ in 0..10 {
                self.answer(name).await?;
            }
            Ok::<_, String>(())
        })
        .await;
    }

    async fn answer(&self, name: &str) -> Result<(), String> {
        let answer = get(self.port, self.host, &[]).await?;
        if answer == name { Ok(()) } else { Err(answer) }
    }
}

/// Waits until a registry is said to be unreadable.
pub(crate) async fn is_failing(pilotfish: &Pilotfish, registry: &str) {
    eventually("the failure is told", || async {
        let (_, text) = pilotfish.answer("/ready").await?;
        if text.contains(&format!("{registry}: cannot be read since")) { Ok(()) } else { Err(text) }
    })
    .await;
}
