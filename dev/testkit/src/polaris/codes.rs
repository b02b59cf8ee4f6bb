//! Result codes of the server.

/// [rec *] Texts of the codes.
pub(super) fn info(code: u32) -> &'static str {
    match code {
        200_000 => "execute success",
        200_001 => "discover data is no change",
        200_002 => "update data is no change, no need to update",
        400_000 => "bad request",
        400_001 => "request decode failed",
        400_002 => "empty request",
        400_003 => "batch size over the limit",
        400_004 => "invalid discover resource",
        400_103 => "invalid parameter",
        400_104 => "query instance parameter is empty",
        400_105 => "query instance, service or namespace or host is required",
        400_110 => "invalid namespace name",
        400_120 => "invalid service name",
        400_121 => "invalid service owners",
        400_124 => "invalid service ports",
        400_128 => "invalid service comment",
        400_130 => "invalid instance id",
        400_131 => "invalid instance host",
        400_132 => "invalid instance port",
        400_136 => "invalid instance protocol",
        400_137 => "invalid instance version",
        400_133 => "invalid service alias",
        400_134 => "request namespace is not allow to create sid type alias",
        400_138 => "invalid instance logic set",
        400_150 => "the length of metadata is too long or metadata contains invalid characters",
        400_201 => "existed resource",
        400_202 => "not found resource",
        400_203 => "some services existed in namespace",
        400_204 => "some instances existed in service",
        400_208 => "the same instance request",
        400_210 => "some aliases existed in service",
        400_301 => "not found service",
        400_303 => "not found instances",
        400_304 => "not found service alias",
        400_312 => "not found user",
        400_504 => "only source service can create alias",
        401_001 => "access is not approved",
        429_001 => "instance has too many requests",
        500_000 => "server error",
        500_001 => "store layer exception",
        _ => "unknown",
    }
}

/// Reason of the refusal of one element in a batch.
pub(super) type Refusal = (u32, String);

pub(super) fn refusal(code: u32) -> Refusal {
    (code, info(code).to_owned())
}
