//! Heartbeat streams: renewals, one response for each request.

use crate::activity::Activity;
use crate::api::{Api, closed, in_time};
use crate::failure::Failure;
use crate::identity::Who;
use crate::watch::{StreamEnd, StreamSlots, shutting_down};
use futures::{Stream, StreamExt};
use pilotfish_registration_api::v1;
use std::sync::Arc;
use tonic::Status;

struct Beating<S> {
    api: Arc<Api>,
    who: Who,
    requests: S,
    end: StreamEnd,
    _slots: StreamSlots,
}

impl Api {
    /// Answers requests in order; the next one is read after the response.
    pub(crate) fn heartbeat<S>(
        self: &Arc<Self>,
        who: &Who,
        activity: &Arc<Activity>,
        requests: S,
    ) -> Result<impl Stream<Item = Result<v1::HeartbeatResponse, Status>> + Send + use<S>, Failure>
    where
        S: Stream<Item = Result<v1::HeartbeatRequest, Status>> + Send + Unpin + 'static,
    {
        let slots = self.open_stream(who, activity)?;
        let end = StreamEnd::new(self.limits.stream_age, who);
        let beating = Beating { api: Arc::clone(self), who: who.clone(), requests, end, _slots: slots };
        Ok(futures::stream::unfold(Some(beating), |beating| async {
            let mut beating = beating?;
            match beating.next().await? {
                Ok(response) => Some((Ok(response), Some(beating))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }
}

impl<S: Stream<Item = Result<v1::HeartbeatRequest, Status>> + Unpin> Beating<S> {
    /// Returns the next response; `None` at the end of the client's stream.
    async fn next(&mut self) -> Option<Result<v1::HeartbeatResponse, Status>> {
        let mut closing = self.api.closing.clone();
        let request = loop {
            tokio::select! {
                biased;
                () = closed(&mut closing) => return Some(Err(shutting_down().to_status())),
                ended = self.end.reached() => return Some(Err(ended.to_status())),
                request = self.requests.next() => break request?,
                // A silent stream must also end with its client's token.
                () = tokio::time::sleep(self.api.bookmark_interval) => {
                    if let Err(failure) = self.api.check_stream(&self.who) {
                        return Some(Err(failure.to_status()));
                    }
                }
            }
        };
        let request = match request {
            Ok(request) => request,
            Err(status) => return Some(Err(status)),
        };
        let answer = in_time(self.api.limits.request_timeout, self.api.beat(&self.who, request)).await;
        Some(answer.map_err(|failure| {
            self.api.note(&failure);
            failure.to_status()
        }))
    }
}

impl Api {
    async fn beat(&self, who: &Who, request: v1::HeartbeatRequest) -> Result<v1::HeartbeatResponse, Failure> {
        self.take_rate(who)?;
        self.check_stream(who)?;
        let mut response = v1::HeartbeatResponse::default();
        for (index, result) in (0..).zip(self.renew_all(who, request.renewals).await) {
            match result {
                Ok(v1::RenewResponse {}) => response.renewed += 1,
                Err(failure) => {
                    response.failures.push(v1::HeartbeatFailure { index, error: Some(failure.to_error()) });
                }
            }
        }
        Ok(response)
    }
}
