//! The resource types, one folder each with the same structure: the view (the relevant facets of a proxy),
//! the batches (resources that are generated together), the generation.

pub(crate) mod cds;
pub(crate) mod ecds;
pub(crate) mod eds;
pub(crate) mod lds;
pub(crate) mod nds;
pub(crate) mod rds;
pub(crate) mod sds;

#[cfg(test)]
mod tests;
