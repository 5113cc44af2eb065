// What the library asks of the process that loads it.
#pragma once

namespace clikart {

// Registers the handlers of forks, and keeps the library loaded: its threads run its code until the process
// ends. Called when the library is loaded, for a handler that a thread registers while another one forks does
// not run in that fork.
int InstallProcessHooks();

}  // namespace clikart
