//! Time for certificates: that of the API server, which checks them. With a wrong clock, a replica would take
//! another one's certificate for expired or not yet valid, and create a new one.

use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Timeout of the request.
const ANSWER: Duration = Duration::from_secs(10);

/// Time of the API server, from the `Date` header of any response; `None` without one.
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
