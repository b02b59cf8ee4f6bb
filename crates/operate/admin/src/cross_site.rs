//! Requests that a browser makes for a page of another site.
//!
//! A browser on this machine can reach the admin address for every page that it has open. Such a page cannot
//! read a response, but its request is still executed. Browsers send the site of the requesting page:
//! `Sec-Fetch-Site` (W3C Fetch Metadata), and `Origin` (RFC 6454) if they are older or the address is not a
//! trusted one. Programs send neither.

use axum::http::{HeaderMap, header};

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const DEST: &str = "sec-fetch-dest";

/// Response to such a request.
pub(crate) const REFUSAL: &str = "this was asked for by a page of another site: open it from its own \
    address, or enter the address by hand\n";

/// True if a page of another site sends the request. Another port of this machine is another site as well.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SITE) {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), headers.get(header::HOST).map(|host| host.to_str()))
    else {
        return true;
    };
    // `null` is the origin of files and sandboxed frames.
    origin.split_once("://").is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(host))
}

/// True if a user follows a link: the page is shown on its own, and the other site neither reads nor frames
/// it.
pub(crate) fn is_link(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &[u8]| headers.get(name).is_some_and(|found| found.as_bytes() == value);
    is(MODE, b"navigate") && is(DEST, b"document")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let parse =
            |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        all.iter().map(parse).collect()
    }

    #[test]
    fn browsers_say_for_whom_they_ask() {
        let host = ("host", "localhost:15014");
        for (all, foreign) in [
            (&[host][..], false),
            (&[host, (SITE, "same-origin")], false),
            (&[host, (SITE, "none")], false),
            (&[host, (SITE, "same-site")], true),
            (&[host, (SITE, "cross-site")], true),
            (&[host, (SITE, "what comes next")], true),
            (&[host, ("origin", "http://localhost:15014")], false),
            (&[host, ("origin", "http://LOCALHOST:15014")], false),
            (&[host, ("origin", "http://localhost:3000")], true),
            (&[host, ("origin", "https://evil.example.com")], true),
            (&[host, ("origin", "null")], true),
            (&[("origin", "http://localhost:15014")], true),
            // A proxy in between may give it another name: the browser knows better.
            (&[host, (SITE, "same-origin"), ("origin", "https://mesh.example.com")], false),
        ] {
            assert_eq!(is_foreign(&headers(all)), foreign, "{all:?}");
        }
    }

    #[test]
    fn a_link_is_no_picture_and_no_frame() {
        for (mode, dest, link) in [
            ("navigate", "document", true),
            ("navigate", "iframe", false),
            ("no-cors", "image", false),
            ("cors", "empty", false),
        ] {
            assert_eq!(is_link(&headers(&[(MODE, mode), (DEST, dest)])), link, "{mode} {dest}");
        }
    }
}
