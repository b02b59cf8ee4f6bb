//! Reads of all keys of a prefix at one revision, page by page.

use crate::proto::{Header, KeyValue, RangeRequest};
use crate::{CallError, Client};
use pilotfish_runtime::SessionError;

/// Number of keys per page; fewer if values are so large that a page exceeds the message limit.
const PAGE: i64 = 1_000;

impl Client {
    /// Reads all keys of a prefix at one revision, which is in the returned header. `requested` is called for
    /// each request; `visit` is called with each key in ascending order, and may stop the read with an error.
    ///
    /// # Errors
    /// [`CallError::Compacted`] when the revision was compacted meanwhile: a new call reads a newer one.
    pub async fn read_prefix(
        &self,
        prefix: &[u8],
        requested: impl Fn() + Send,
        mut visit: impl FnMut(&KeyValue) -> Result<(), String> + Send,
    ) -> Result<Header, CallError> {
        let refused = |reason: &str| CallError::Refused(SessionError::new(reason));
        let range_end = end_of(prefix);
        let (mut from, mut limit, mut first) = (first_of(prefix), PAGE, Header::default());
        loop {
            let (key, range_end) = (from.clone(), range_end.clone());
            requested();
            let ask = RangeRequest { key, range_end, limit, revision: first.revision, ..Default::default() };
            let page = match self.range(ask).await {
                Err(CallError::TooLarge) if limit > 1 => {
                    limit = (limit / 8).max(1);
                    continue;
                }
                page => page?,
            };
            if first.revision == 0 {
                let header = page.header.filter(|header| header.revision > 0);
                first = header.ok_or_else(|| refused("it says no revision"))?;
            }
            page.kvs.iter().try_for_each(&mut visit).map_err(|reason| refused(&reason))?;
            match page.kvs.last() {
                Some(last) if page.more => from = [&*last.key, &[0]].concat(),
                None if page.more => return Err(refused("it says that there is more, and gives nothing")),
                _ => return Ok(first),
            }
        }
    }
}

/// Returns the first key of a prefix. Without a prefix it is `\0`: the empty key does not exist.
#[must_use]
pub fn first_of(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

/// Returns the end of the range of a prefix: the prefix with its last byte incremented, or `\0` (no end) if
/// no byte can be.
#[must_use]
pub fn end_of(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        }
        None => vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_the_keys_of_a_prefix() {
        for (prefix, first, end) in
            [("/services/", "/services/", &b"/services0"[..]), ("", "\0", b"\0"), ("a", "a", b"b")]
        {
            assert_eq!(
                (first_of(prefix.as_bytes()), end_of(prefix.as_bytes())),
                (first.into(), end.to_vec())
            );
        }
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
    }
}
