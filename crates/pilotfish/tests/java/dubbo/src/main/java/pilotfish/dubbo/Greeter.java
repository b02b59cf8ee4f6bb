package pilotfish.dubbo;

/** The service. Its answer names the provider that gave it. */
public interface Greeter {
    String greet(String name);

    String leave(String name);
}
