use super::*;
use crate::testing::{info, text};
use proptest::prelude::*;

fn status(app: &str, id: &str, status: &str, action: &str) -> InstanceInfo {
    InstanceInfo { status: text(status), action_type: text(action), ..info(app, id) }
}

fn answer(hash: &str, instances: Vec<InstanceInfo>) -> Applications {
    Applications { hash: Some(hash.to_owned()), instances, unreadable: Vec::new() }
}

fn names(touched: &BTreeSet<Arc<str>>) -> Vec<&str> {
    touched.iter().map(|name| &**name).collect()
}

fn ids(replica: &Replica, service: &str) -> Vec<String> {
    replica.instances(service).map(|instance| instance.key.id.to_string()).collect()
}

#[test]
fn the_hash_counts_each_status_in_the_order_of_their_names() {
    for (statuses, hash) in [
        (&[][..], ""),
        (&["UP"], "UP_1_"),
        (&["UP", "DOWN", "UP"], "DOWN_1_UP_2_"),
        (
            &["UP", "UNKNOWN", "STARTING", "OUT_OF_SERVICE", "DOWN"],
            "DOWN_1_OUT_OF_SERVICE_1_STARTING_1_UNKNOWN_1_UP_1_",
        ),
        (&["", "NEW_STATUS"], "UNKNOWN_2_"),
    ] {
        let mut replica = Replica::new(By::App);
        let instances = statuses.iter().enumerate().map(|(id, it)| status("A", &id.to_string(), it, "ADDED"));
        assert_eq!(
            replica.replace(answer(hash, instances.collect())),
            Agreement::Agrees,
            "{}",
            replica.hash()
        );
        assert_eq!(replica.hash(), hash);
    }
}

#[test]
fn changes_come_in_their_order_and_name_what_they_concern() {
    let mut replica = Replica::new(By::App);
    replica.replace(answer("UP_2_", vec![info("A", "1"), info("B", "1")]));
    let delta = vec![
        status("A", "1", "UP", "DELETED"),
        status("A", "2", "DOWN", "ADDED"),
        status("B", "1", "UP", "MODIFIED"),
    ];
    let (touched, agreement) = replica.apply(answer("DOWN_1_UP_1_", delta));
    assert_eq!((names(&touched), agreement), (vec!["A"], Agreement::Agrees), "B is what it was");
    assert_eq!(ids(&replica, "A"), ["2"]);
}

#[test]
fn a_change_that_comes_again_concerns_nothing() {
    let mut replica = Replica::new(By::App);
    replica.replace(answer("UP_1_", vec![info("A", "1")]));
    let delta = || answer("UP_1_", vec![status("A", "1", "UP", "DELETED"), status("A", "2", "UP", "ADDED")]);
    assert_eq!(names(&replica.apply(delta()).0), ["A"]);
    let (touched, agreement) = replica.apply(delta());
    assert_eq!((names(&touched), agreement), (vec![], Agreement::Agrees));
}

#[test]
fn a_missed_change_is_noticed() {
    let mut replica = Replica::new(By::App);
    replica.replace(answer("UP_2_", vec![info("A", "1"), info("A", "2")]));
    assert_eq!(replica.apply(answer("UP_1_", vec![])).1, Agreement::Differs);
    assert_eq!(replica.apply(answer("DOWN_1_UP_1_", vec![])).1, Agreement::Differs);
    let unsaid = Applications { hash: None, ..answer("", vec![]) };
    assert_eq!(replica.apply(unsaid).1, Agreement::Unsaid);
}

#[test]
fn a_service_ends_with_its_last_instance() {
    let mut replica = Replica::new(By::App);
    replica.replace(answer("UP_1_", vec![info("A", "1")]));
    let (touched, _) = replica.apply(answer("", vec![status("A", "1", "UP", "DELETED")]));
    assert_eq!(names(&touched), ["A"]);
    assert_eq!((replica.services().count(), ids(&replica, "A").len()), (0, 0));
}

#[test]
fn an_instance_that_moves_to_another_virtual_address_concerns_both() {
    let mut replica = Replica::new(By::Vip);
    let with = |vip| InstanceInfo { vip_address: text(vip), ..info("A", "1") };
    replica.replace(answer("UP_1_", vec![with("a,b")]));
    let (touched, _) = replica.apply(answer("UP_1_", vec![with("b,c")]));
    assert_eq!(names(&touched), ["a", "b", "c"]);
    assert_eq!(replica.services().map(|name| &**name).collect::<Vec<_>>(), ["b", "c"]);
}

/// A server: what it has, and the changes that it keeps, of which it gives all each time.
#[derive(Default)]
struct Server {
    has: BTreeMap<(u8, u8), InstanceInfo>,
    changes: Vec<((u8, u8), bool)>,
    deleted: BTreeMap<(u8, u8), InstanceInfo>,
}

impl Server {
    fn step(&mut self, key: (u8, u8), state: u8) {
        let name = |number: u8| format!("N{number}");
        match state {
            0 => {
                let Some(gone) = self.has.remove(&key) else { return };
                self.deleted.insert(key, InstanceInfo { action_type: text("DELETED"), ..gone });
                self.changes.push((key, true));
            }
            state => {
                let it = ["UP", "DOWN", "STARTING", "OUT_OF_SERVICE"][usize::from(state - 1) % 4];
                let vip = if state > 4 { "x,y" } else { "y" };
                let new = status(&name(key.0), &name(key.1), it, "MODIFIED");
                self.has.insert(key, InstanceInfo { vip_address: text(vip), ..new });
                self.changes.push((key, false));
            }
        }
    }

    fn hash(&self) -> String {
        let mut counts = BTreeMap::<&str, usize>::new();
        for instance in self.has.values() {
            *counts.entry(&instance.status.0).or_default() += 1;
        }
        counts.iter().map(|(status, count)| format!("{status}_{count}_")).collect()
    }

    fn full(&self) -> Applications {
        answer(&self.hash(), self.has.values().map(copy).collect())
    }

    /// The last change of each instance counts, at its place in the order.
    fn delta(&self) -> Applications {
        let mut seen = BTreeSet::new();
        let newest = self.changes.iter().rev().filter(|(key, _)| seen.insert(*key));
        let newest: Vec<_> = newest.collect();
        let given = newest.into_iter().rev().filter_map(|(key, is_gone)| match is_gone {
            true => self.deleted.get(key),
            false => self.has.get(key),
        });
        answer(&self.hash(), given.map(copy).collect())
    }
}

fn copy(info: &InstanceInfo) -> InstanceInfo {
    let base = self::info(&info.app.0, &info.instance_id.0);
    let (status, vip_address) = (info.status.clone(), info.vip_address.clone());
    InstanceInfo { status, vip_address, action_type: info.action_type.clone(), ..base }
}

proptest! {
    #[test]
    fn changes_lead_to_what_a_full_answer_says(
        before in prop::collection::vec(((0u8..3, 0u8..4), 0u8..7), 0..20),
        rounds in prop::collection::vec(prop::collection::vec(((0u8..3, 0u8..4), 0u8..7), 0..8), 1..6),
    ) {
        for by in [By::App, By::Vip] {
            let mut server = Server::default();
            before.iter().for_each(|(key, state)| server.step(*key, *state));
            let mut replica = Replica::new(by);
            prop_assert_eq!(replica.replace(server.full()), Agreement::Agrees);
            for round in &rounds {
                let known = state_of(&replica);
                round.iter().for_each(|(key, state)| server.step(*key, *state));
                let (touched, agreement) = replica.apply(server.delta());
                prop_assert_eq!(agreement, Agreement::Agrees);
                let mut full = Replica::new(by);
                full.replace(server.full());
                let (has, should) = (state_of(&replica), state_of(&full));
                prop_assert_eq!(&has, &should);
                prop_assert_eq!(&replica.counts, &full.counts);
                // What differs is named, and nothing else.
                for service in known.keys().chain(has.keys()) {
                    let differs = known.get(service) != has.get(service);
                    prop_assert!(!differs || touched.contains(service), "{} is not named", service);
                }
            }
        }
    }
}

fn state_of(replica: &Replica) -> BTreeMap<Arc<str>, Vec<Arc<Instance>>> {
    replica.services().map(|name| (name.clone(), replica.instances(name).cloned().collect())).collect()
}
