//! Processors that sign, shared by certificate requests and certificates over SDS.

use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Limit of the processors that sign at a time, so that streams go on during a storm.
///
/// A request first needs a place in front of the processors, of which there is one for each. SDS, which makes
/// one certificate at a time, needs none. So only as many requests as there are processors are ever ahead of
/// it, and one of its certificates is ahead of them.
pub(super) struct Processors {
    places: Arc<Semaphore>,
    processors: Arc<Semaphore>,
}

/// Right to sign; ends when it is dropped.
pub(super) struct Turn {
    /// Released before the place: SDS may wait for it.
    _processor: OwnedSemaphorePermit,
    _place: Option<OwnedSemaphorePermit>,
}

impl Default for Processors {
    fn default() -> Self {
        Self::new(available_parallelism().map_or(1, |all| (all.get() / 2).max(1)))
    }
}

impl Processors {
    fn new(processors: usize) -> Self {
        let [places, processors] = [(); 2].map(|()| Arc::new(Semaphore::new(processors)));
        Self { places, processors }
    }

    /// Waits until a request may be signed.
    ///
    /// # Errors
    /// Never: the semaphores are not closed.
    pub(super) async fn for_request(&self) -> Result<Turn, AcquireError> {
        let place = self.places.clone().acquire_owned().await?;
        Ok(Turn { _processor: self.processors.clone().acquire_owned().await?, _place: Some(place) })
    }

    /// Waits until a certificate over SDS may be made.
    ///
    /// # Errors
    /// Never: the semaphores are not closed.
    pub(super) async fn for_sds(&self) -> Result<Turn, AcquireError> {
        Ok(Turn { _processor: self.processors.clone().acquire_owned().await?, _place: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    /// Order in which 20 requests and 20 certificates over SDS are signed, by these many processors.
    async fn order(processors: usize) -> String {
        let (signers, signed) = (Arc::new(Processors::new(processors)), Arc::new(Mutex::new(String::new())));
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let (signers, signed) = (signers.clone(), signed.clone());
            tasks.spawn(async move {
                let turn = signers.for_request().await.unwrap();
                tokio::task::yield_now().await;
                signed.lock().push('r');
                drop(turn);
            });
        }
        let of_sds = signed.clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                let turn = signers.for_sds().await.unwrap();
                tokio::task::yield_now().await;
                of_sds.lock().push('s');
                drop(turn);
            }
        });
        tasks.join_all().await;
        signed.lock().clone()
    }

    #[tokio::test]
    async fn storm_of_requests_and_storm_of_sds_do_not_starve_each_other() {
        for processors in [1, 2, 4] {
            let order = order(processors).await;
            assert_eq!(order.len(), 40);
            // Those that are running, and as many that follow while the other kind is.
            let many = |what: char| what.to_string().repeat(2 * processors + 1);
            let both = &order[..order.rfind('r').unwrap().min(order.rfind('s').unwrap())];
            assert!(!both.contains(&many('r')), "{processors}: {order}");
            assert!(!both.contains(&many('s')), "{processors}: {order}");
        }
    }
}
