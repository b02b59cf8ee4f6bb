//! Queue of events from connections to the state machine.
//!
//! Clients control the rate of connections and health reports, so the queue is bounded by relevant events:
//! for each workload the newest report, and one event for each connection that the state machine does not
//! know yet, or still knows.

use super::entry::EntryName;
use super::tracker::Event;
use pilotfish_runtime::{CoalescingReceiver, CoalescingSender, coalescer};

/// Subject of an event. Events with the same subject keep their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Entry(EntryName),
    Group { namespace: String, name: String },
}

impl Subject {
    fn of(event: &Event) -> Self {
        match event {
            Event::Connected { entry, .. }
            | Event::Disconnected { entry, .. }
            | Event::Health { entry, .. }
            | Event::Left { entry }
            | Event::Gone { entry, .. } => Self::Entry(entry.clone()),
            Event::GroupAdded { namespace, name } => {
                Self::Group { namespace: namespace.clone(), name: name.clone() }
            }
        }
    }
}

pub(super) fn mailbox() -> (EventSender, EventReceiver) {
    let (sender, receiver) = coalescer();
    (EventSender(sender), EventReceiver(receiver))
}

/// Sender for connections. Clones send to the same receiver.
#[derive(Clone)]
pub(super) struct EventSender(CoalescingSender<Subject, Vec<Event>>);

impl EventSender {
    pub(super) fn send(&self, event: Event) {
        // The receiver is dropped only when the process ends.
        self.0.update(Subject::of(&event), |waiting| Some(merge(waiting.unwrap_or_default(), event)));
    }
}

/// Adds an event to those of its subject.
fn merge(mut waiting: Vec<Event>, event: Event) -> Vec<Event> {
    if let Event::Disconnected { connection: ended, .. } = &event {
        let began =
            |event: &Event| matches!(event, Event::Connected { connection, .. } if connection == ended);
        if let Some(at) = waiting.iter().position(began) {
            // A connection that was not handled yet leaves no trace.
            waiting.remove(at);
            return waiting;
        }
    }
    let is_state = |event: &Event| !matches!(event, Event::Connected { .. } | Event::Disconnected { .. });
    let same = |other: &Event| std::mem::discriminant(other) == std::mem::discriminant(&event);
    waiting.retain(|other| !(is_state(other) && same(other)));
    waiting.push(event);
    waiting
}

/// Receiver of the state machine.
pub(super) struct EventReceiver(CoalescingReceiver<Subject, Vec<Event>>);

impl EventReceiver {
    /// Waits for events. `None` once every sender is dropped.
    pub(super) async fn recv(&mut self) -> Option<Vec<Event>> {
        Some(self.0.recv().await?.into_values().flatten().collect())
    }

    /// Returns the queued events, without waiting.
    pub(super) fn take(&mut self) -> Vec<Event> {
        self.0.take().into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, name, request};
    use super::*;

    fn connected(connection: u64) -> Event {
        Event::Connected { connection, entry: name(), request: request(), at: at(0) }
    }

    fn disconnected(connection: u64) -> Event {
        Event::Disconnected { connection, entry: name(), at: at(0) }
    }

    fn health(text: &str) -> Event {
        Event::Health { entry: name(), at: at(0), health: Err(text.to_owned()) }
    }

    /// What the receiver gets of these events, in words.
    fn received(events: Vec<Event>) -> Vec<String> {
        let (sender, mut receiver) = mailbox();
        events.into_iter().for_each(|event| sender.send(event));
        let word = |event: &Event| match event {
            Event::Connected { connection, .. } => format!("connected {connection}"),
            Event::Disconnected { connection, .. } => format!("disconnected {connection}"),
            Event::Health { entry, health, .. } => format!("{} {health:?}", entry.name),
            other => format!("{other:?}"),
        };
        receiver.take().iter().map(word).collect()
    }

    #[test]
    fn a_client_that_reports_without_end_keeps_one_report_waiting() {
        let mut events = vec![connected(1)];
        events.extend((0..10_000).map(|n| health(&n.to_string())));
        assert_eq!(received(events), ["connected 1", "machines-10.0.0.1 Err(\"9999\")"]);
    }

    #[test]
    fn workloads_do_not_replace_each_others_reports() {
        let other = EntryName { name: "other".into(), ..name() };
        let of_other = Event::Health { entry: other, at: at(0), health: Ok(()) };
        let events = vec![health("a"), of_other, health("b")];
        assert_eq!(received(events), ["machines-10.0.0.1 Err(\"b\")", "other Ok(())"]);
    }

    #[test]
    fn a_report_stays_between_the_connections_around_it() {
        let events = vec![disconnected(1), connected(2), health("a"), connected(3)];
        let expected = ["disconnected 1", "connected 2", "machines-10.0.0.1 Err(\"a\")", "connected 3"];
        assert_eq!(received(events), expected);
    }

    #[test]
    fn a_client_that_connects_without_end_leaves_nothing_waiting() {
        let events = (0..1000).flat_map(|n| [connected(n), disconnected(n)]);
        assert_eq!(received(events.collect()), [""; 0]);
        let known = vec![connected(7), disconnected(3), connected(8), disconnected(8)];
        assert_eq!(received(known), ["connected 7", "disconnected 3"]);
    }
}
