//! How memory is given back to the system.

/// Keeps memory in small pages. The allocator asks for huge ones, which stay as a whole as long as a few bytes of each are in use: after
/// clients that asked for much have gone, that was more than all that was still needed.
#[cfg(target_os = "linux")]
pub(super) fn in_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay as the system has them");
    }
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub(super) fn in_small_pages() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn huge_pages_are_off_afterwards() {
        super::in_small_pages();
        assert_eq!(rustix::thread::transparent_huge_pages_are_disabled(), Ok(true));
    }
}
