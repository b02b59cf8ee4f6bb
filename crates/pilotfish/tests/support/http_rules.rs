//! Rules for HTTP out of chance: what they match, and what they do.

use super::dice::Dice;
use super::requests::{Service, destinations};

/// What a rule for HTTP does.
pub(crate) fn action(services: &[Service], at: usize, dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => "directResponse: {status: 418}".to_owned(),
        1 => "redirect: {uri: /moved}".to_owned(),
        _ => destinations(services, at, dice),
    }
}

/// What a rule matches.
pub(crate) fn condition(dice: &mut Dice) -> String {
    let condition = dice.pick(&[
        "",
        "",
        "{uri: {prefix: /v1}}",
        "{uri: {exact: /a}}",
        "{uri: {regex: '/[ab]'}}",
        "{method: {exact: POST}}",
        "{headers: {x-user: {exact: tester}}}",
        "{headers: {x-user: {prefix: team}}, uri: {prefix: /}}",
        "{headers: {x-user: {regex: 'te.*'}}}",
        "{withoutHeaders: {x-user: {}}}",
        "{authority: {prefix: s1}}",
        "{uri: {prefix: /V1}, ignoreUriCase: true}",
    ]);
    if condition.is_empty() { String::new() } else { format!("match: [{condition}], ") }
}
