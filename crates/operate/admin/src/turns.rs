//! Fair scheduling of debug pages: a limited number is computed at a time, fewer for one address, so that a
//! client with many requests does not block others.
//!
//! ```text
//!           a place of all         a turn of the          a turn of all
//! request ─▶ and of the address ─▶ address's own      ─▶  (AT_A_TIME)      ─▶ the page is made
//!           (else refused)         (OF_AN_ADDRESS)
//! ```
//!
//! A request waits for a permit of its address first, so that the global queue never has more than
//! [`OF_AN_ADDRESS`] requests of one address.

use pilotfish_admission::{KeyedSemaphore, Permit, network_of};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum number of pages that are computed at a time (`debug-pages`): each may hold all data in memory.
pub(crate) const AT_A_TIME: usize = 3;
/// Maximum number of pages that are computed at a time for one address (`address-debug-pages`).
pub(crate) const OF_AN_ADDRESS: usize = 2;
/// Maximum number of waiting requests and those that just received a permit: each uses a connection of its
/// address, which probes need too.
const PLACES: usize = 32;
/// Maximum number of such requests of one address.
const PLACES_OF_AN_ADDRESS: usize = 16;
/// Maximum time that a request waits for its permit.
const PATIENCE: Duration = Duration::from_secs(5);

/// Scheduler of debug pages, as described in the module.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    of_addresses: KeyedSemaphore<IpAddr>,
    places: Semaphore,
    places_of_addresses: KeyedSemaphore<IpAddr>,
}

/// Permit to compute a page. Dropping it admits the next request.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_address: Permit,
}

/// Name of the limit that refused a request.
pub(crate) type Limit = &'static str;
const ALL: Limit = "debug-pages";
const ADDRESS: Limit = "address-debug-pages";

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(AT_A_TIME)),
            of_addresses: KeyedSemaphore::new(OF_AN_ADDRESS),
            places: Semaphore::new(PLACES),
            places_of_addresses: KeyedSemaphore::new(PLACES_OF_AN_ADDRESS),
        }
    }

    /// Waits for a permit. Requests without an address come from this machine.
    ///
    /// # Errors
    /// Name of the limit, if too many requests wait or it takes too long.
    pub(crate) async fn turn(&self, peer: Option<IpAddr>) -> Result<Turn, Limit> {
        let address = network_of(peer.unwrap_or(Ipv4Addr::LOCALHOST.into()));
        let _of_address = self.places_of_addresses.try_acquire(address).ok_or(ADDRESS)?;
        let _of_all = self.places.try_acquire().map_err(|_| ALL)?;
        let mut waits_for = ADDRESS;
        let turn = async {
            let of_address = self.of_addresses.acquire(address).await;
            waits_for = ALL;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn { _of_all: of_all, _of_address: of_address })
        };
        let turn = timeout(PATIENCE, turn).await;
        turn.ok().flatten().ok_or(waits_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Turn, Limit>> + 'a>>;

    fn poll(waiting: &mut Waiting<'_>) -> Poll<Result<Turn, Limit>> {
        waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ask(turns: &Turns, last: u8) -> Waiting<'_> {
        Box::pin(turns.turn(Some(Ipv4Addr::new(192, 0, 2, last).into())))
    }

    #[tokio::test]
    async fn an_address_that_asks_for_many_keeps_no_other_waiting() {
        let turns = Turns::new();
        let mut many: Vec<Waiting<'_>> = (0..PLACES_OF_AN_ADDRESS + 3).map(|_| ask(&turns, 1)).collect();
        let answers: Vec<_> = many.iter_mut().map(poll).collect();
        let ready = |answers: &[Poll<Result<Turn, Limit>>]| {
            answers.iter().filter(|answer| matches!(answer, Poll::Ready(Ok(_)))).count()
        };
        assert_eq!(ready(&answers), OF_AN_ADDRESS);
        let refused = answers.iter().filter(|answer| matches!(answer, Poll::Ready(Err(ADDRESS)))).count();
        assert_eq!(refused, 1, "those that have their turn have left their places");
        let mut other = ask(&turns, 2);
        assert!(matches!(poll(&mut other), Poll::Ready(Ok(_))), "another address has its turn at once");
        drop(answers);
        let answers: Vec<_> = many[OF_AN_ADDRESS..PLACES_OF_AN_ADDRESS].iter_mut().map(poll).collect();
        assert_eq!(ready(&answers), OF_AN_ADDRESS, "the next ones follow");
    }

    #[tokio::test]
    async fn few_requests_wait_for_their_turn() {
        let turns = Turns::new();
        let mut held: Vec<Waiting<'_>> = (0..AT_A_TIME as u8).map(|last| ask(&turns, 100 + last)).collect();
        let held: Vec<_> = held.iter_mut().map(poll).collect();
        let mut waiting: Vec<Waiting<'_>> = (0..=PLACES as u8).map(|last| ask(&turns, last)).collect();
        let (one_more, places) = waiting.split_last_mut().unwrap();
        assert!(places.iter_mut().all(|place| poll(place).is_pending()));
        assert!(matches!(poll(one_more), Poll::Ready(Err(ALL))), "one more is told at once");
        drop(held);
        assert!(matches!(poll(&mut places[0]), Poll::Ready(Ok(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_which_limit_it_is() {
        let turns = Turns::new();
        let mine = Ipv4Addr::new(192, 0, 2, 1).into();
        let one = turns.turn(Some(mine)).await.unwrap();
        let two = turns.turn(Some(mine)).await.unwrap();
        assert_eq!(turns.turn(Some(mine)).await.unwrap_err(), ADDRESS);
        let three = turns.turn(None).await.unwrap();
        assert_eq!(turns.turn(None).await.unwrap_err(), ALL);
        drop((one, two, three));
        assert!(turns.turn(None).await.is_ok());
    }
}
