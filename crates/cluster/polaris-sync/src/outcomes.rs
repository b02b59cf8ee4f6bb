//! Results of the elements of a call.
//!
//! The code of the whole answer is not sufficient: one bad element makes the server refuse all of them, and
//! mixed results collapse to 400000 or 500000. So each element of an answer is evaluated, and elements that
//! it does not mention are sent again without the bad ones.

use crate::bodies::request_of;
use crate::client::Client;
use crate::codes::{EXISTS, Failure, FailureClass, is_done, is_gone};
use crate::reconcile::{AliasKey, Call, InstanceKey, Place, ServiceKey};
use crate::target::PolarisTarget;
use crate::wire::{Answer, Element};
use http::Method;
use std::collections::BTreeMap;

/// Maximum number of requests for one call: bisection finds some bad elements among a hundred, and stops if
/// the server refuses all of them.
const MAX_REQUESTS: usize = 24;

/// Result of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Written, or already as desired.
    Done,
    /// It already existed, and may differ from the desired state.
    Exists,
    /// Not written, for this reason.
    Failed(Failure),
}

/// Sends a call until each of its elements has succeeded or failed.
///
/// # Errors
/// When the server did not answer, so that the results are unknown, or refuses the token.
pub(crate) async fn execute(
    client: &Client,
    target: &PolarisTarget,
    call: &Call,
) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes: Vec<Option<Outcome>> = vec![None; call.len()];
    // Elements of one request each.
    let mut groups: Vec<Vec<usize>> = vec![(0..call.len()).collect()];
    let mut requests = 0;
    while let Some(group) = groups.pop().filter(|group| !group.is_empty()) {
        let part = call.only(|at| group.contains(&at));
        let request = request_of(&part, target);
        let method = if request.method == "PUT" { Method::PUT } else { Method::POST };
        let answer = client.call(call.operation(), method, request.path, Some(&request.body)).await?;
        requests += 1;
        let found = read(&part, &answer);
        let mut left = Vec::new();
        for (at, outcome) in group.iter().zip(found.by_element) {
            match outcome {
                Some(outcome) => set(&mut outcomes, *at, outcome),
                None => left.push(*at),
            }
        }
        match found.rest {
            _ if left.is_empty() => {}
            Rest::Is(Outcome::Failed(failure)) if failure.class == FailureClass::Denied => {
                return Err(failure);
            }
            Rest::Is(outcome) => left.iter().for_each(|at| set(&mut outcomes, *at, outcome.clone())),
            // Some element was refused, and the server did not name it: bisect.
            Rest::NotWritten
                if left.len() == group.len() && left.len() > 1 && requests + groups.len() < MAX_REQUESTS =>
            {
                let half = left.split_off(left.len() / 2);
                groups.extend([left, half]);
            }
            Rest::NotWritten if left.len() == group.len() => {
                let failure = Failure::of_code(answer.code, &answer.info);
                left.iter().for_each(|at| set(&mut outcomes, *at, Outcome::Failed(failure.clone())));
            }
            Rest::NotWritten => groups.push(left),
        }
    }
    let unknown = || Outcome::Failed(Failure::new(FailureClass::Transient, "the answer does not mention it"));
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unknown)).collect())
}

fn set(outcomes: &mut [Option<Outcome>], at: usize, outcome: Outcome) {
    if let Some(place) = outcomes.get_mut(at) {
        *place = Some(outcome);
    }
}

/// Evaluation of an answer.
struct Found {
    by_element: Vec<Option<Outcome>>,
    rest: Rest,
}

/// Result of elements that an answer does not mention.
enum Rest {
    Is(Outcome),
    /// Not written, because other elements were refused.
    NotWritten,
}

fn read(call: &Call, answer: &Answer) -> Found {
    let mut by_element = vec![None; call.len()];
    let names = names(call);
    let is_in_order = answer.responses.len() == call.len();
    for (index, element) in answer.responses.iter().enumerate() {
        let Some(code) = element.code else { continue };
        let named = name_of(call, element).and_then(|name| names.get(&name)).copied();
        if let Some(place) = named.or(is_in_order.then_some(index)).and_then(|at| by_element.get_mut(at)) {
            let outcome = outcome(call, code, &element.info);
            // The failure wins if an element is mentioned twice.
            if !matches!(place, Some(Outcome::Failed(_))) {
                *place = Some(outcome);
            }
        }
    }
    let of_all = outcome(call, answer.code, &answer.info);
    let is_single = matches!(call, Call::CreateAlias(..) | Call::UpdateAlias(..));
    let rest = match of_all {
        Outcome::Failed(failure) if failure.class == FailureClass::Refused && !is_single => Rest::NotWritten,
        Outcome::Failed(failure) if failure.class == FailureClass::Missing && !is_single => Rest::NotWritten,
        outcome => Rest::Is(outcome),
    };
    Found { by_element, rest }
}

fn outcome(call: &Call, code: u32, info: &str) -> Outcome {
    let deletes =
        matches!(call, Call::RetireInstances(_) | Call::DeleteInstances(_) | Call::DeleteAliases(_));
    let creates = matches!(call, Call::CreateNamespaces(_) | Call::CreateServices(_) | Call::CreateAlias(..));
    if is_done(code) || deletes && is_gone(code) {
        Outcome::Done
    } else if code == EXISTS && matches!(call, Call::CreateNamespaces(_)) {
        // A namespace has nothing that could differ.
        Outcome::Done
    } else if code == EXISTS && creates {
        Outcome::Exists
    } else {
        Outcome::Failed(Failure::of_code(code, info))
    }
}

/// Identity of an element.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Namespace(String),
    Service(ServiceKey),
    Alias(AliasKey),
    Instance(InstanceKey),
}

fn names(call: &Call) -> BTreeMap<Name, usize> {
    let names: Vec<Name> = match call {
        Call::CreateNamespaces(all) => all.iter().map(|name| Name::Namespace((**name).to_owned())).collect(),
        Call::CreateServices(all) | Call::UpdateServices(all) => {
            all.iter().map(|write| Name::Service(write.key.clone())).collect()
        }
        Call::CreateAlias(alias, _) | Call::UpdateAlias(alias, _) => vec![Name::Alias(alias.clone())],
        Call::CreateInstances(all) | Call::UpdateInstances(all) => {
            all.iter().map(|write| Name::Instance(write.key.clone())).collect()
        }
        Call::RetireInstances(all) => all.iter().map(|one| Name::Instance(one.key.clone())).collect(),
        Call::DeleteInstances(all) => all.iter().cloned().map(Name::Instance).collect(),
        Call::DeleteAliases(all) => all.iter().cloned().map(Name::Alias).collect(),
    };
    names.into_iter().enumerate().map(|(at, name)| (name, at)).collect()
}

fn name_of(call: &Call, element: &Element) -> Option<Name> {
    match call {
        Call::CreateNamespaces(_) => Some(Name::Namespace((*element.namespace.as_ref()?.name).to_owned())),
        Call::CreateServices(_) | Call::UpdateServices(_) => {
            let service = element.service.as_ref()?;
            Some(Name::Service(ServiceKey::new(service.namespace.clone(), service.name.clone())))
        }
        Call::CreateAlias(..) | Call::UpdateAlias(..) | Call::DeleteAliases(_) => {
            let alias = element.alias.as_ref()?;
            let name = ServiceKey::new(alias.alias_namespace.clone(), alias.alias.clone());
            Some(Name::Alias(AliasKey(name)))
        }
        Call::CreateInstances(_)
        | Call::UpdateInstances(_)
        | Call::RetireInstances(_)
        | Call::DeleteInstances(_) => {
            let instance = element.instance.as_ref()?;
            let service = ServiceKey::new(instance.namespace.clone(), instance.service.clone());
            Some(Name::Instance(InstanceKey::new(service, Place::new(instance.host.clone(), instance.port?))))
        }
    }
}
