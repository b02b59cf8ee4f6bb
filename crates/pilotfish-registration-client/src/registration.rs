//! An instance that is kept registered.

use crate::client::RegistrationClient;
use crate::error::ClientError;
use crate::keeper::{Command, Keeper};
use pilotfish_registration_api::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Where a registration is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrationState {
    /// It is not registered yet.
    #[default]
    Pending,
    /// It is registered, and its lease was renewed when it had to be.
    Registered {
        /// The revision of its last change.
        revision: u64,
    },
    /// Renewing or registering again fails. It is tried again.
    Failing {
        /// Why.
        reason: String,
    },
    /// It is deregistered, or given up.
    Closed,
}

/// An instance that is registered. Dropping it deregisters it in the background; [`Registration::close`] waits for that.
#[derive(Debug)]
pub struct Registration {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<RegistrationState>,
    keeper: Option<JoinHandle<Result<(), ClientError>>>,
}

impl Registration {
    /// Registers an instance once, and then keeps it.
    pub(crate) async fn begin(
        client: RegistrationClient,
        instance: v1::Instance,
    ) -> Result<Self, ClientError> {
        let (commands, receiver) = mpsc::channel(4);
        let (state, watched) = watch::channel(RegistrationState::Pending);
        let mut keeper = Keeper::new(client, instance, state);
        keeper.register().await?;
        let keeper = tokio::spawn(keeper.run(receiver));
        Ok(Self { commands, state: watched, keeper: Some(keeper) })
    }

    /// Changes what is registered: all of it but the name.
    ///
    /// # Errors
    /// When a server says no: what was registered before is kept. When no server answers now, the change is made as soon as one does,
    /// and this is no error.
    pub async fn update(&self, instance: v1::Instance) -> Result<(), ClientError> {
        let (answer, answered) = oneshot::channel();
        let gone = || ClientError::Settings("the registration is closed".to_owned());
        self.commands.send(Command::Update(Box::new(instance), answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Where it is now.
    #[must_use]
    pub fn state(&self) -> RegistrationState {
        self.state.borrow().clone()
    }

    /// Where it is, as that changes.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Deregisters the instance, and waits for that.
    ///
    /// # Errors
    /// When no server answers within some seconds. The instance then goes when its lease ends.
    pub async fn close(mut self) -> Result<(), ClientError> {
        // The keeper may have ended: then there is nothing to stop.
        let _ = self.commands.send(Command::Close).await;
        match self.keeper.take() {
            Some(keeper) => {
                keeper.await.unwrap_or_else(|error| Err(ClientError::Settings(error.to_string())))
            }
            None => Ok(()),
        }
    }
}
