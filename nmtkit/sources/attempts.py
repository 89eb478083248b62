"""The attempts of a download: from any address that works, with longer and longer pauses."""

from collections.abc import Sequence
from time import sleep

from nmtkit.sources.address import (
    Address,
    AddressError,
    NoConnectionError,
    TransientError,
    file_size,
)
from nmtkit.utils.errors import Log

MAX_ATTEMPTS = 5  # of all addresses, one after the other, in which no byte arrives
FIRST_PAUSE_S = 1.0  # doubled before each attempt


class Attempts:
    """Attempts to complete one of several archives from any of their addresses.

    Attributes:
        errors: The last error of each address that failed.
    """

    def __init__(self, addresses: Sequence[Address], warn: Log) -> None:
        """Prepare the attempts.

        Args:
            addresses: The addresses of all archives.
            warn: Prints the failure of an address.
        """
        self.errors: dict[str, AddressError] = {}
        self._warn = warn
        self._addresses = list(addresses)  # that may still succeed
        self._max_bytes = {address.part: file_size(address.part) for address in addresses}
        self._has_grown = False  # whether any bytes have arrived
        self._n_failures = 0  # attempts since bytes arrived last

    def run(self, name: str, log: Log) -> Address | None:
        """Attempt until an archive is complete.

        Args:
            name: Name of the file, for messages.
            log: Prints waits and retries.

        Returns:
            The address that completed its archive; None if all addresses failed.
        """
        while self._addresses and self._n_failures < MAX_ATTEMPTS:
            if self._n_failures:
                pause = FIRST_PAUSE_S * 2**self._n_failures
                log(
                    f"download {name}: attempt {self._n_failures + 1} of {MAX_ATTEMPTS} in "
                    f"{pause:.0f} s"
                )
                sleep(pause)
            self._n_failures += 1
            completed = self._try_addresses()
            if completed is not None:
                return completed
            # Without a network, waiting for all attempts would only delay the message.
            if not self._has_grown and self._is_offline():
                return None
        return None

    def _try_addresses(self) -> Address | None:
        """Try the addresses in turn, until bytes arrive from one of them.

        Returns:
            The address if it completed its archive, else None.
        """
        # The archive of which the most has arrived is completed first.
        for address in sorted(self._addresses, key=lambda address: -file_size(address.part)):
            address.progress(file_size(address.part))
            try:
                address.complete()
            except AddressError as error:
                self._record_failure(address, error)
            else:
                return address
            # An attempt in which bytes arrived does not count: slow lines need many of them.
            n_bytes = file_size(address.part)
            if n_bytes > self._max_bytes[address.part]:
                self._max_bytes[address.part] = n_bytes
                self._has_grown = True
                self._n_failures = 0
                return None
        return None

    def _record_failure(self, address: Address, error: AddressError) -> None:
        """Warn of a failure, and try the address last in the next attempt, if at all."""
        address.progress(-file_size(address.part))
        self._warn(f"download {address.url}: {error}")
        self.errors[address.url] = error
        self._addresses.remove(address)
        if isinstance(error, TransientError):
            self._addresses.append(address)

    def _is_offline(self) -> bool:
        """Return whether no host was reached, after all addresses have failed."""
        for address in self._addresses:
            if not isinstance(self.errors[address.url], NoConnectionError):
                return False
        return True
