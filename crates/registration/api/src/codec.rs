//! Codec of the gRPC stubs: prost, with requests checked before they are decoded.

use crate::bounds::{Refused, check_encoded};
use crate::error::LIMIT_HEADER;
use prost::bytes::Buf;
use prost::{Message, Name};
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::metadata::MetadataValue;
use tonic_prost::ProstEncoder;

/// Encodes `T` and decodes `U`.
#[derive(Debug)]
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Checked<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(PhantomData)
    }
}

/// Decoder of `U` that checks the limits first.
#[derive(Debug)]
pub(crate) struct Checked<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for Checked<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let encoded = buf.copy_to_bytes(buf.remaining());
        check_encoded(&U::full_name(), &encoded).map_err(refusal)?;
        U::decode(encoded).map(Some).map_err(|error| refusal(error.into()))
    }
}

fn refusal(refused: Refused) -> Status {
    match refused {
        Refused::Malformed(error) => Status::invalid_argument(error.to_string()),
        Refused::Bound(bound) => {
            let mut status = Status::resource_exhausted(bound.to_string());
            status.metadata_mut().insert(LIMIT_HEADER, MetadataValue::from_static(bound.limit()));
            status
        }
    }
}
