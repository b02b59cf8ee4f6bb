//! Test utilities: recorded cases of a real istiod and their comparison, in one process and without a
//! network; and real servers and clients on loopback.

pub mod cases;
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub mod consul;
pub mod dump;
pub mod istioctl;
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub mod istiod;
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub mod live;
pub mod oracle;
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub mod polaris;
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub mod real;
