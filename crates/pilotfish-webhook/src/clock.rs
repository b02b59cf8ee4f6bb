//! Which time it is for certificates: that of the API server, which is who checks them. Clocks of replicas may be wrong; each
//! would take what another one made for expired or not yet valid, and make a new one.

use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The time of the API server, by the `Date` of an answer of any status; `None` without one.
pub(crate) async fn of_api_server(client: &Client) -> Option<SystemTime> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let answer = timeout(ANSWER, client.send(request)).await.ok()?.ok()?;
    parse(answer.headers().get(http::header::DATE)?.to_str().ok()?)
}

fn parse(date: &str) -> Option<SystemTime> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    PARSER.parse_timestamp(date).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        let known = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(known));
        assert_eq!(parse("yesterday"), None);
    }
}
