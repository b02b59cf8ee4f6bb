//! Fault injection in a VirtualService.

use crate::networking::{Abort, Delay, GRPC_STATUSES, HttpFaultInjection};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::quoted;
use crate::validate::fields::values::{self, at_most_one, fine_percent, percent};

pub(super) fn check(fault: &HttpFaultInjection, at: &Path<'_>, checker: &mut Checker) {
    if fault.abort.is_none() && fault.delay.is_none() {
        checker.warning(at, "is empty, set one of abort and delay");
    }
    if let Some(value) = &fault.abort {
        abort(value, &at.field("abort"), checker);
    }
    if let Some(value) = &fault.delay {
        delay(value, &at.field("delay"), checker);
    }
}

fn abort(abort: &Abort, at: &Path<'_>, checker: &mut Checker) {
    share(abort.percent, abort.percentage.map(|value| value.value), at, checker);
    let set = [
        ("httpStatus", abort.http_status.is_some()),
        ("grpcStatus", abort.grpc_status.is_some()),
        ("http2Error", abort.http2_error.is_some()),
    ];
    at_most_one(&set, at, checker);
    if set.iter().all(|(_, set)| !set) {
        checker.warning(at, "has neither httpStatus nor grpcStatus, so nothing is aborted");
    }
    if let Some(status) = abort.http_status {
        values::http_status(i64::from(status), &at.field("httpStatus"), checker);
    }
    if let Some(status) = &abort.grpc_status
        && !GRPC_STATUSES.contains(&status.as_str())
    {
        let message = format!("{} is not a status of gRPC", quoted(status));
        let hint = crate::problem::did_you_mean(status, GRPC_STATUSES.into_iter());
        let hint = hint.unwrap_or_else(|| "for example UNAVAILABLE".to_owned());
        checker.error_with_hint(&at.field("grpcStatus"), message, hint);
    }
    if abort.http2_error.is_some() {
        checker.warning(&at.field("http2Error"), "is not supported, it has no effect");
    }
}

fn delay(delay: &Delay, at: &Path<'_>, checker: &mut Checker) {
    share(delay.percent, delay.percentage.map(|value| value.value), at, checker);
    values::duration(delay.fixed_delay, &at.field("fixedDelay"), checker);
    if delay.exponential_delay.is_some() {
        checker.warning(&at.field("exponentialDelay"), "is not supported, it has no effect");
    }
}

fn share(whole: i32, fine: Option<f64>, at: &Path<'_>, checker: &mut Checker) {
    percent(f64::from(whole), &at.field("percent"), checker);
    if let Some(value) = fine {
        fine_percent(value, &at.field("percentage").field("value"), checker);
    }
}
