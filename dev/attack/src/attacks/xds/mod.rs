//! Attacks by xDS clients.

mod debug;
mod handshakes;
mod incomplete;
mod limits;
mod names;
mod nodes;
mod readers;
mod recorded;
mod tokens;
mod views;

use crate::Attack;

pub(super) fn all() -> Vec<Attack> {
    [
        names::ATTACKS,
        nodes::ATTACKS,
        incomplete::ATTACKS,
        handshakes::ATTACKS,
        views::ATTACKS,
        readers::ATTACKS,
        tokens::ATTACKS,
        recorded::ATTACKS,
        limits::ATTACKS,
        debug::ATTACKS,
    ]
    .concat()
}
