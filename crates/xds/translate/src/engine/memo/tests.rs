use super::*;
use crate::testing::object;
use pilotfish_model::{Kind, KindSpec, Namespace, ObjectKey, Update, WorldWriter};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::thread;

/// What the toy world consists of: numbers under names.
#[derive(Debug, PartialEq)]
struct Number(i64);

impl KindSpec for Number {
    const KIND: Kind = Kind::ConfigMap;
}

fn name_of(fact: usize) -> String {
    format!("n{fact}")
}

/// A memo with the world that it is fed from.
struct Toy {
    writer: WorldWriter,
    memo: Memo,
}

impl Toy {
    fn new(numbers: &[i64]) -> Self {
        let mut toy = Self { writer: WorldWriter::new(), memo: Memo::new() };
        toy.set(&numbers.iter().copied().enumerate().map(|(fact, n)| (fact, Some(n))).collect::<Vec<_>>());
        toy
    }

    /// Sets numbers, or takes them away; returns the roots that this touches.
    fn set(&mut self, numbers: &[(usize, Option<i64>)]) -> Vec<Touched> {
        for (fact, number) in numbers {
            self.writer.apply(match number {
                Some(number) => Update::Object(object("toy", &name_of(*fact), Number(*number))),
                None => Update::RemoveObject(ObjectKey::new(Kind::ConfigMap, "toy", name_of(*fact))),
            });
        }
        let Some((world, changes)) = self.writer.publish() else { return Vec::new() };
        self.memo.advance(world, &changes).1
    }

    fn get<Q: Query>(&self, query: &Q) -> Arc<Q::Output> {
        self.memo.get(&self.memo.read(), query).0
    }

    fn root<Q: Query>(&self, query: &Q) -> Arc<Q::Output> {
        let current = self.memo.read();
        let (value, node) = self.memo.get(&current, query);
        self.memo.set_root(node);
        value
    }

    /// How many computations `f` causes.
    fn count(&self, f: impl FnOnce()) -> u64 {
        let before = self.memo.computed();
        f();
        self.memo.computed() - before
    }

    /// The value of a query in a memo that has never computed anything.
    fn computed_fresh<Q: Query>(&self, query: &Q) -> Arc<Q::Output> {
        let memo = Memo::new();
        let (current, _) = memo.advance(Arc::new(self.writer.world().clone()), &ChangeSet::default());
        memo.get(&current, query).0
    }
}

impl Memo {
    /// The nodes that are kept, or known as readers of facts.
    fn ids(&self) -> BTreeSet<u64> {
        let graph = self.find_all::<InGraph>();
        graph.into_iter().chain(self.facts.lock().values().flat_map(Readers::ids)).collect()
    }

    fn find_all<Q: Query>(&self) -> BTreeSet<u64> {
        let table = self.table::<Q>();
        Table::<Q>::of(&*table).nodes.read().values().map(|node| node.id).collect()
    }

    /// The roots and all that they depend on.
    fn needed(&self) -> BTreeSet<u64> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<Arc<Node>> = self.roots.lock().values().cloned().collect();
        while let Some(node) = open.pop() {
            if needed.insert(node.id) {
                open.extend(node.result.lock().reads.nodes.iter().cloned());
            }
        }
        needed
    }
}

fn read(cx: &Cx<'_>, fact: usize) -> i64 {
    cx.object::<Number>(&Namespace::from("toy"), &name_of(fact)).map_or(-1, |number| number.0)
}

/// Whether a number is even.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsEven(usize);

impl Query for IsEven {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        read(cx, self.0) % 2 == 0
    }
}

/// Number 1 where number 0 is even, else number 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Chosen;

impl Query for Chosen {
    type Output = i64;

    fn compute(&self, cx: &Cx<'_>) -> i64 {
        read(cx, if *cx.get(&IsEven(0)) { 1 } else { 2 })
    }
}

#[test]
fn an_equal_value_stops_the_spread() {
    let mut toy = Toy::new(&[0, 10, 20]);
    assert_eq!(toy.count(|| assert_eq!(*toy.get(&Chosen), 10)), 2);
    toy.set(&[(0, Some(2))]);
    assert_eq!(toy.count(|| assert_eq!(*toy.get(&Chosen), 10)), 1, "only whether it is even");
    toy.set(&[(7, Some(1))]);
    assert_eq!(toy.count(|| assert_eq!(*toy.get(&Chosen), 10)), 0, "no query reads that number");
}

#[test]
fn what_is_no_longer_read_no_longer_counts() {
    let mut toy = Toy::new(&[0, 10, 20]);
    toy.root(&Chosen);
    assert_eq!(toy.set(&[(1, Some(11))]).len(), 1);
    assert_eq!(*toy.get(&Chosen), 11);
    assert_eq!(toy.set(&[(2, Some(21))]).len(), 0);
    assert_eq!(toy.set(&[(0, Some(1))]).len(), 1);
    assert_eq!(*toy.get(&Chosen), 21);
    assert_eq!(toy.set(&[(1, Some(12))]).len(), 0, "the other number is read now");
    assert_eq!(toy.set(&[(2, Some(22))]).len(), 1);
    assert_eq!(*toy.get(&Chosen), 22);
}

#[test]
fn an_empty_answer_is_an_answer() {
    let mut toy = Toy::new(&[0]);
    assert_eq!(*toy.root(&Chosen), -1);
    assert_eq!(toy.set(&[(1, Some(10))]).len(), 1);
    assert_eq!(*toy.get(&Chosen), 10);
    assert_eq!(toy.set(&[(1, None)]).len(), 1);
    assert_eq!(*toy.get(&Chosen), -1);
}

#[test]
fn roots_are_reported_with_their_old_value() {
    let mut toy = Toy::new(&[0, 10, 20]);
    toy.root(&Chosen);
    let touched = toy.set(&[(1, Some(11))]);
    let (query, before) = (touched[0].query::<Chosen>(), touched[0].before::<Chosen>());
    assert_eq!((query, before.as_deref()), (Some(&Chosen), Some(&10)));
    assert!(touched[0].query::<IsEven>().is_none() && touched[0].before::<IsEven>().is_none());
    assert_eq!(toy.set(&[(1, Some(12))]).len(), 0, "no query read it since");
    toy.get(&Chosen);
    assert_eq!(toy.set(&[(1, Some(13))]).len(), 1);
    toy.get(&Chosen);
    toy.memo.unroot(&Chosen);
    assert_eq!(toy.set(&[(1, Some(14))]).len(), 0);
}

#[test]
fn a_sweep_keeps_what_roots_read() {
    let mut toy = Toy::new(&[0, 10, 20]);
    toy.root(&Chosen);
    toy.get(&IsEven(1));
    assert_eq!(toy.memo.len(), 3);
    toy.memo.sweep();
    assert_eq!(toy.memo.len(), 2);
    assert_eq!(toy.count(|| assert_eq!(*toy.get(&Chosen), 10)), 0);
    toy.set(&[(0, Some(1))]);
    assert_eq!(*toy.get(&Chosen), 20);
    toy.memo.unroot(&Chosen);
    toy.memo.unroot(&IsEven(9));
    toy.memo.sweep();
    assert_eq!((toy.memo.len(), toy.memo.facts.lock().len()), (0, 0));
}

#[test]
fn a_sweep_forgets_readers_that_are_gone() {
    let toy = Toy::new(&[0, 10, 20]);
    toy.root(&IsEven(0));
    toy.get(&Chosen);
    let readers = |toy: &Toy| toy.memo.find(&IsEven(0)).unwrap().readers.lock().ids().len();
    assert_eq!(readers(&toy), 1);
    toy.memo.sweep();
    assert_eq!(readers(&toy), 0);
}

/// Counts up with every computation that differs, as resources do that know when they changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Dated;

impl Query for Dated {
    type Output = (bool, u64);

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        (*cx.get(&IsEven(0)), 0)
    }

    fn reconcile(old: Option<&Self::Output>, new: Self::Output, revision: u64) -> Self::Output {
        (new.0, old.map_or(revision, |old| old.1 + 100))
    }
}

#[test]
fn a_new_value_is_joined_with_the_old_one() {
    let mut toy = Toy::new(&[0]);
    assert_eq!(*toy.get(&Dated), (true, 1));
    toy.set(&[(0, Some(1))]);
    assert_eq!(*toy.get(&Dated), (false, 101));
}

/// Needs itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cyclic(u8);

impl Query for Cyclic {
    type Output = u8;

    fn compute(&self, cx: &Cx<'_>) -> u8 {
        *cx.get(&Cyclic((self.0 + 1) % 3))
    }
}

#[test]
#[should_panic(
    expected = "query Cyclic(0) needs its own result, through Cyclic(2) of Cyclic(1) of Cyclic(0)"
)]
fn a_cycle_is_reported_rather_than_waited_for() {
    Toy::new(&[]).get(&Cyclic(0));
}

#[test]
fn a_result_is_computed_once_however_many_read_it() {
    let mut toy = Toy::new(&[0, 10, 20]);
    for round in 0..50 {
        toy.set(&[(0, Some(round)), (1, Some(round + 100)), (2, Some(round + 200))]);
        let want = if round % 2 == 0 { round + 100 } else { round + 200 };
        let before = toy.memo.computed();
        thread::scope(|scope| {
            let evaluate = || (0..20).for_each(|_| assert_eq!(*toy.get(&Chosen), want));
            (0..4).for_each(|_| drop(scope.spawn(evaluate)));
        });
        assert_eq!(toy.memo.computed() - before, 2);
    }
}

#[test]
fn readers_see_one_world_while_it_moves_on() {
    let mut toy = Toy::new(&[0, 0, 0]);
    let Toy { writer, memo } = &mut toy;
    let memo = &*memo;
    thread::scope(|scope| {
        let reader = || {
            for _ in 0..300 {
                let current = memo.read();
                let world: i64 =
                    current.world.typed::<Number>(&"toy".into(), "n1").map_or(-1, |number| number.0);
                assert_eq!(*memo.get(&current, &Chosen).0, world);
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(reader)).collect();
        for round in 0..300 {
            // Both numbers move together, so the choice between them never shows.
            for (fact, number) in [(0, round), (1, round), (2, round)] {
                writer.apply(Update::Object(object("toy", &name_of(fact), Number(number))));
            }
            if let Some((world, changes)) = writer.publish() {
                drop(memo.advance(world, &changes));
            }
            memo.sweep();
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    toy.memo.sweep();
    assert_eq!(
        (toy.memo.len(), toy.memo.facts.lock().len()),
        (0, 0),
        "what was in use meanwhile is dropped now"
    );
}

/// A graph of queries: each reads numbers and queries before it, some of them only if what it read so far is
/// even.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Graph(Vec<Vec<Read>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Read {
    what: What,
    only_if_even: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Fact(usize),
    Query(usize),
}

/// One query of a graph. Its value is coarse, so that a change often ends there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InGraph {
    graph: Arc<Graph>,
    index: usize,
}

impl Query for InGraph {
    type Output = i64;

    fn compute(&self, cx: &Cx<'_>) -> i64 {
        let mut sum = 0;
        for wanted in &self.graph.0[self.index] {
            if wanted.only_if_even && sum % 2 != 0 {
                continue;
            }
            sum += match wanted.what {
                What::Fact(fact) => read(cx, fact),
                // A query reads only those before it.
                What::Query(at) if self.index > 0 => {
                    *cx.get(&Self { graph: self.graph.clone(), index: at % self.index })
                }
                What::Query(_) => 0,
            };
        }
        sum.rem_euclid(3)
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Operation {
    Set(Vec<(usize, Option<i64>)>),
    Get(usize),
    Root(usize),
    Unroot(usize),
    Sweep,
}

const FACTS: usize = 6;

fn graph() -> impl Strategy<Value = Graph> {
    let what = prop_oneof![(0..FACTS).prop_map(What::Fact), any::<usize>().prop_map(What::Query)];
    let wanted = (what, any::<bool>()).prop_map(|(what, only_if_even)| Read { what, only_if_even });
    prop::collection::vec(prop::collection::vec(wanted, 1..5), 1..12).prop_map(Graph)
}

fn step() -> impl Strategy<Value = Operation> {
    let number = (0..FACTS, prop::option::weighted(0.8, 0..4i64));
    prop_oneof![
        4 => prop::collection::vec(number, 1..4).prop_map(Operation::Set),
        4 => any::<usize>().prop_map(Operation::Get),
        2 => any::<usize>().prop_map(Operation::Root),
        1 => any::<usize>().prop_map(Operation::Unroot),
        1 => Just(Operation::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn incremental_equals_from_scratch(graph in graph(), steps in prop::collection::vec(step(), 1..60)) {
        let graph = Arc::new(graph);
        let at = |index: usize| InGraph { graph: graph.clone(), index: index % graph.0.len() };
        let mut toy = Toy::new(&[0; FACTS]);
        // The roots, each with the value that was reported last.
        let mut reported: BTreeMap<usize, i64> = BTreeMap::new();
        for step in steps {
            match step {
                Operation::Set(numbers) => {
                    for touched in toy.set(&numbers) {
                        let query = touched.query::<InGraph>().unwrap().clone();
                        let before = touched.before::<InGraph>();
                        prop_assert_eq!(before.as_deref(), reported.get(&query.index));
                        reported.insert(query.index, *toy.get(&query));
                    }
                    for (index, reported) in &reported {
                        prop_assert_eq!(reported, &*toy.computed_fresh(&at(*index)), "a change was not reported");
                    }
                }
                Operation::Get(index) => prop_assert_eq!(toy.get(&at(index)), toy.computed_fresh(&at(index))),
                Operation::Root(index) => {
                    let query = at(index);
                    reported.insert(query.index, *toy.root(&query));
                }
                Operation::Unroot(index) => {
                    toy.memo.unroot(&at(index));
                    reported.remove(&at(index).index);
                }
                Operation::Sweep => {
                    toy.memo.sweep();
                    prop_assert_eq!(toy.memo.ids(), toy.memo.needed());
                }
            }
        }
        for index in 0..graph.0.len() {
            prop_assert_eq!(toy.get(&at(index)), toy.computed_fresh(&at(index)));
        }
    }
}
